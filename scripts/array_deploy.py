"""Files that Ansible needs to install a plan on its hosts: an inventory, and the kernel's settings."""
import json

import array_control
import array_disks
from array_engines import MARKER
from array_plan import parse_feed

# The smallest values that are written. systemd/sysctl.conf has the same values.
LEAST = {"rmem_max": 1 << 30, "wmem_max": 1 << 28, "memberships": 4096}


def memberships(engine):
    """The largest number of groups that a socket of an engine joins."""
    if engine.kind == "xbgpu":
        return 1
    inputs = [sum(len(parse_feed(text)) for value in antenna[pol] for text in value.split(","))
              for _, antenna in engine.antennas for pol in ("pol0", "pol1")]
    return sum(inputs)  # an engine may have a single receive thread, whose socket joins all groups


def sysctl(plan):
    """Kernel settings that suffice for the most demanding engine.  All hosts get the same settings."""
    array = plan.array
    largest = {key: max(LEAST[key], *(array[engine.kind][section]["buffer"] for engine in plan.engines))
               for key, section in (("rmem_max", "recv"), ("wmem_max", "send"))}
    groups = max(LEAST["memberships"], *(memberships(engine) for engine in plan.engines))
    return "\n".join([
        f"{MARKER}: kernel settings that the engines of {array['name']} need.",
        "# Socket buffers: at least recv.buffer and send.buffer of every engine.",
        f"net.core.rmem_max = {largest['rmem_max']}",
        f"net.core.wmem_max = {largest['wmem_max']}",
        "# Packets that wait for the kernel, on each CPU.",
        "net.core.netdev_max_backlog = 100000",
        "# Multicast groups that one socket may join.",
        f"net.ipv4.igmp_max_memberships = {groups}",
        ""])


def inventory(plan, source):
    """Returns the inventory.  'source' is the directory of the programs' sources, for hosts without packages.

    The controller's host has a second name in the group cbf_control.  So --limit can name the controller alone.
    """
    lines = [f"{MARKER}: the hosts of {plan.array['name']}, and what runs on each.",
             "all:",
             "  vars:",
             f"    cbf_source: {json.dumps(str(source))}",
             "    ansible_pipelining: true  # a move to a spare takes fewer seconds",
             "  children:",
             "    cbf:",
             "      hosts:"]
    for host in plan.array["hosts"]:
        services = [f"{{program: {engine.kind}, name: {engine.name}}}" for engine in plan.on(host)]
        services += [f"{{program: {recorder.kind}, name: {recorder.name}, directory: {json.dumps(recorder.directory)}, "
                     f"elsewhere: {json.dumps(recorder.writes_elsewhere)}}}"
                     for recorder in plan.recorders if recorder.host is host]
        lines += [f"        {host['name']}:",
                  f"          ansible_host: {host['address']}",
                  f"          cbf_services:{'' if services else ' []'}"]
        lines += [f"            - {service}" for service in services]
        removals = array_disks.tmpfiles(plan, host)
        if removals:
            lines += [f"          cbf_removals: {json.dumps(removals)}"]
        if plan.controller and (host["spare"] or plan.controller.host is host):
            lines += ["          cbf_may_control: true"]
        if plan.controller and plan.controller.host is host:
            lines += ["          cbf_controller: true"]
    lines += ["    cbf_control:", f"      hosts:{'' if plan.controller else ' {}'}"]
    if plan.controller:
        lines += [f"        {array_control.ALIAS}:", f"          ansible_host: {plan.controller.host['address']}",
                  f"          cbf_host: {plan.controller.host['name']}"]
    return "\n".join(lines) + "\n"
