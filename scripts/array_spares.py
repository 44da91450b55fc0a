"""Spares: hosts to which the programs of a dead host move.

The file moves.yaml in the output directory keeps the moves, so later plans contain the moves.  A moved program keeps
its name, its streams, its multicast addresses, its TCP ports and its seeds.  A moved program uses the control address,
the interface and the GPU of the spare.
"""
import re
from pathlib import Path

import yaml

import array_control
import array_disks
import array_plan
import array_recorder
from array_engines import MARKER
from array_file import Faults, nearest

FILE = "moves.yaml"
GPU = r"\d+|GPU-[0-9a-fA-F-]{36}|([0-9a-fA-F]+:)+[0-9a-fA-F]+(\.[0-9a-fA-F]+)?"  # an index, a UUID or a PCI address


def plan_of(array, faults, moves=None):
    """Returns the complete plan of an array.  If there is a conflict, reports the conflict and returns None.  The keys
    of the array must be checked before.

    moves: {name of a host: name of the spare that runs the host's programs}
    """
    moves = moves or {}
    for home, place in moves.items():
        sentence = misfit(find(array, home), find(array, place))
        if sentence:
            faults.add(find(array, place).mark, sentence)
            return None
    plan = array_plan.make_plan(array, faults, moves)
    if faults.faults:
        return None
    plan.recorders = array_recorder.make_recorders(plan, faults)
    plan.controller = array_control.make_controller(plan, faults)
    array_disks.check(plan, faults)
    return None if faults.faults else plan


def find(array, name):
    """Returns the host with this name, or None."""
    return next((host for host in array["hosts"] if host["name"] == name), None)


def misfit(home, spare):
    """Returns a sentence that says which part the spare lacks; None if it lacks none.  The plan checks rates, memory,
    CPUs and disks."""
    gpus, names = array_plan.numbered_gpus(home), spare["gpus"] or []
    n_here, n_there = len(home["interfaces"]), len(spare["interfaces"])
    if len(names) < len(gpus):
        return f"{spare['name']} has {len(names)} GPUs, but the engines of {home['name']} use {len(gpus)}"
    if n_there < n_here:
        return f"{spare['name']} has {n_there} interfaces, but {home['name']} has {n_here}"
    return None


def check_spares(array, moves, path, faults):
    """Finds which hosts each free spare can replace.  A spare that can replace no host is a fault.

    Returns {name of a spare: [name of each host]}
    """
    able = {}
    homes = [host for host in array["hosts"] if not host["spare"]]
    for spare in array["hosts"]:
        if not spare["spare"] or spare["name"] in moves.values():
            continue
        for name in spare["gpus"] or []:
            if not re.fullmatch(GPU, name):
                faults.add(spare.mark_at("gpus"), f"gpus of {spare['name']} must be indices, UUIDs (GPU-...) or PCI "
                                                  f"addresses (0000:3b:00.0), not \"{name}\"")
        reasons = {}
        for home in homes:
            trial = Faults(path)
            plan_of(array, trial, moves | {home["name"]: spare["name"]})
            reasons[home["name"]] = trial.faults[0][1] if trial.faults else None
        able[spare["name"]] = [name for name, reason in reasons.items() if not reason]
        if not able[spare["name"]]:
            name, reason = next(iter(reasons.items()))
            faults.add(spare.mark, f"{spare['name']} can replace no host; {name}: {reason}")
    return able


# ---- Moves -----------------------------------------------------------------------------------------------------------


def load(output, array, faults):
    """Reads moves.yaml in the directory 'output'.  Returns the moves: {name of a host: name of the host's spare}."""
    path = Path(output or "") / FILE
    if not output or not path.exists():
        return {}
    try:
        moves = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        pairs = [(str(home), str(place)) for home, place in moves.items()]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError):
        faults.add(array.mark_at("hosts"), f"{path} is damaged: remove it, and repeat its moves")
        return {}
    for home, place in pairs:
        there, spare = find(array, home), find(array, place)
        if there is None or there["spare"] or spare is None or not spare["spare"]:
            faults.add(array.mark_at("hosts"), f"{path} says that the programs of {home} run on {place}, but array.yaml "
                                               f"has no such host and spare: correct array.yaml, or remove the line "
                                               f"from {FILE}")
    return dict(pairs)


def text_of(moves):
    return f"{MARKER} --move: hosts whose programs run on a spare.\n" + yaml.safe_dump(moves, default_flow_style=False)


def move(array, moves, source, target, faults):
    """Moves the programs that run on 'source' to 'target'.  'target' is a free spare, or the host of the programs in
    array.yaml.

    Returns all moves, with this move.
    """
    mark, names = array.mark_at("hosts"), [host["name"] for host in array["hosts"]]
    for name in (source, target):
        if name not in names:
            meant = nearest(name, names)
            faults.add(mark, f"--move: there is no host '{name}'" + (f"; did you mean '{meant}'?" if meant else ""))
            return moves
    home = next((home for home, place in moves.items() if place == source), source)
    if find(array, home)["spare"] or home == source and home in moves:
        faults.add(mark, f"--move: no engine of the plan is on {source}")
    elif target in moves.values():
        faults.add(mark, f"--move: {target} already runs the engines of another host")
    elif target != home and not find(array, target)["spare"]:
        faults.add(mark, f"--move: {target} is not a spare" + (f", and array.yaml does not give it the engines on {source}"
                                                             if home != source else ""))
    elif target == source:
        faults.add(mark, f"--move: the engines are on {target} already")
    else:
        others = {name: place for name, place in moves.items() if name != home}
        return others | ({home: target} if target != home else {})
    return moves


def command(plan, output, target):
    """Returns the command that moves the programs to 'target'.  The command also works if the old host is dead."""
    limit = target + (f",{array_control.ALIAS}" if plan.controller else "")
    return (f"ansible-playbook -i {output}/inventory.yaml {output}/playbook.yaml --skip-tags install --limit {limit}")
