"""A KATCP server that serves only permitted clients, and that stays responsive during long answers."""
import asyncio
import ipaddress

import aiokatcp


MAX_PENDING = 1000   # requests in progress; a hung engine keeps some of them waiting
BATCH = 100          # informs of a long answer, after which other requests take their turn
EXIT_RESTART = 75    # as of the engines: systemd starts the program again


class Server(aiokatcp.DeviceServer):
    """'allow' are the networks whose hosts may connect, besides loopback; None: every host may."""

    def __init__(self, host, port, allow):
        super().__init__(host, port, max_pending=MAX_PENDING)
        self._allow = allow
        self.exit_code = 0

    # ---- Access ------------------------------------------------------------------------------------------------------

    def is_allowed(self, host):
        """Whether an ipaddress may send requests."""
        return host.is_loopback or self._allow is None or any(host in network for network in self._allow)

    def _connection_made(self, conn):
        """aiokatcp calls this function before the client gets anything."""
        if not self.is_allowed(ipaddress.ip_address(conn.address.host)):
            conn.logger.warning("refused: katcp.allow does not name this host")
            conn.write_message(aiokatcp.Message.inform("disconnect", "this host is not allowed (katcp.allow)"))
            conn.close()
            return
        conn.buffer_updated = lambda n_bytes: self._first_bytes(conn, n_bytes)
        super()._connection_made(conn)

    @staticmethod
    def _first_bytes(conn, n_bytes):
        """Closes a connection that does not begin with a request, such as one of a web browser: a page that a user of
        this host visits cannot send requests."""
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

        NAME is a sensor, or /regular expression/.
        """
        return await self._long(ctx, ((s.name, s.description, s.units, s.type_name, *s.params)
                                      for s in self._get_sensors(name)))

    async def request_sensor_value(self, ctx, name: str = None) -> int:
        """Reads sensors: time, 1, name, status, value.

        NAME is a sensor, or /regular expression/.
        """
        return await self._long(ctx, ((s.timestamp, 1, s.name, s.status, s.value) for s in self._get_sensors(name)))

    @staticmethod
    async def _long(ctx, informs):
        """Sends informs, and lets other requests take their turns.  Returns the number of informs."""
        n = 0
        for n, inform in enumerate(informs, 1):
            ctx.inform(*inform)
            if n % BATCH == 0:
                await ctx.drain()
                await asyncio.sleep(0)
        return n
