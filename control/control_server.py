"""A KATCP server that serves only permitted clients, and that stays responsive during long answers."""
import asyncio
import ipaddress

import aiokatcp


MAX_PENDING = 1000   # largest number of requests in progress; requests to a hung engine wait
BATCH = 100          # after this number of informs, a long answer lets other requests run
EXIT_RESTART = 75    # after this exit code systemd starts the program again; the engines use the same code


class Server(aiokatcp.DeviceServer):
    """'allow' is the list of networks whose hosts may connect.  Loopback may always connect.  If 'allow' is None, every
    host may connect."""

    def __init__(self, host, port, allow):
        super().__init__(host, port, max_pending=MAX_PENDING)
        self._allow = allow
        self.exit_code = 0

    # ---- Access ------------------------------------------------------------------------------------------------------

    def is_allowed(self, host):
        """Returns whether a host with this IP address may send requests."""
        return host.is_loopback or self._allow is None or any(host in network for network in self._allow)

    def _connection_made(self, conn):
        """aiokatcp calls this function before it sends anything to the client."""
        if not self.is_allowed(ipaddress.ip_address(conn.address.host)):
            conn.logger.warning("refused: katcp.allow does not name this host")
            conn.write_message(aiokatcp.Message.inform("disconnect", "this host is not allowed (katcp.allow)"))
            conn.close()
            return
        conn.buffer_updated = lambda n_bytes: self._first_bytes(conn, n_bytes)
        super()._connection_made(conn)

    @staticmethod
    def _first_bytes(conn, n_bytes):
        """Closes a connection if its first byte is not "?", with which every request begins.  A web browser sends
        another first byte.  So if a user of this host visits a web page, the page cannot send requests."""
        del conn.buffer_updated
        if bytes(conn.get_buffer(-1)[:1]) != b"?":
            conn.abort()
            return
        conn.buffer_updated(n_bytes)

    # ---- Requests of every program -----------------------------------------------------------------------------------

    async def request_halt(self, ctx) -> None:
        """Ends the program.  ?halt from another host acts as ?restart."""
        if not ctx.conn.address.host.is_loopback:
            self.exit_code = EXIT_RESTART
        self.halt()

    async def request_restart(self, ctx) -> None:
        """Ends the program with exit code 75, for the service manager to start it again."""
        self.exit_code = EXIT_RESTART
        self.halt()

    async def request_sensor_list(self, ctx, name: str = None) -> int:
        """Describes the sensors: name, description, units, type, and the values of discrete sensors.

        NAME is the name of a sensor, or /REGULAR EXPRESSION/.
        """
        return await self._long(ctx, ((s.name, s.description, s.units, s.type_name, *s.params)
                                      for s in self._get_sensors(name)))

    async def request_sensor_value(self, ctx, name: str = None) -> int:
        """Reads sensors: time, 1, name, status, value.

        NAME is the name of a sensor, or /REGULAR EXPRESSION/.
        """
        return await self._long(ctx, ((s.timestamp, 1, s.name, s.status, s.value) for s in self._get_sensors(name)))

    @staticmethod
    async def _long(ctx, informs):
        """Sends informs, and lets other requests run in between.  Returns the number of informs."""
        n = 0
        for n, inform in enumerate(informs, 1):
            ctx.inform(*inform)
            if n % BATCH == 0:
                await ctx.drain()
                await asyncio.sleep(0)
        return n
