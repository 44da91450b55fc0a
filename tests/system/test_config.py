"""The daemons' command lines for configuration, and the files in config/ that come from the tables."""

import json
import subprocess

import pytest
import yaml

from harness import BUILD, EXIT_CONFIG, ROOT

pytestmark = pytest.mark.parametrize("program", ["fgpu", "xbgpu"])


def run(program, *args):
    return subprocess.run([BUILD / program, *map(str, args)], capture_output=True, text=True, timeout=60)


def output_of(program, *args):
    result = run(program, *args)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.fixture
def example(program):
    return ROOT / "config" / f"{program}.yaml"


def test_example_is_the_tables(program, example):
    """After a change of a table: build/fgpu --print-example > config/fgpu.yaml."""
    assert example.read_text() == output_of(program, "--print-example")


def test_example_is_good(program, example):
    assert output_of(program, "--check-config", example) == f"{example}: OK\n"


def test_example_explains_every_key(program, example):
    text = example.read_text()
    schema = json.loads(output_of(program, "--print-schema"))
    for name, section in schema["properties"].items():
        assert f"\n{name}:\n" in text
        for key in section.get("items", section)["properties"]:
            assert f"\n  {key}: " in text or f"\n  #{key}: " in text


def test_print_config_is_a_fixed_point(program, example, tmp_path):
    first = output_of(program, "--print-config", example)
    copy = tmp_path / "copy.yaml"
    copy.write_text(first)
    assert output_of(program, "--print-config", copy) == first


def test_print_config_keeps_the_file(program, example):
    """Every value of the file is in effect; lists of addresses are only written differently."""
    given = yaml.safe_load(example.read_text())
    effective = yaml.safe_load(output_of(program, "--print-config", example))
    for name, section in given.items():
        if section is None:
            continue
        pairs = zip(section, effective[name]) if isinstance(section, list) else [(section, effective[name])]
        for given_item, effective_item in pairs:
            for key, value in given_item.items():
                actual = effective_item[key]
                assert actual == value or actual == [value], (name, key)


# ---- The schema, without a validator: the part of draft 2020-12 that --print-schema uses ---------------------------------


def matches_type(value, name):
    return {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "number": isinstance(value, (int, float)) and not isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
    }[name]


def validate(value, schema, where="file"):
    """Asserts that 'value' follows 'schema', and that the schema holds no keyword that is not understood here."""
    for keyword, wanted in schema.items():
        if keyword == "type":
            types = wanted if isinstance(wanted, list) else [wanted]
            assert any(matches_type(value, name) for name in types), where
        elif keyword == "enum":
            assert value in wanted, where
        elif keyword == "anyOf":
            assert any(is_valid(value, option) for option in wanted), where
        elif keyword in ("minimum", "maximum"):
            if matches_type(value, "number"):
                assert value >= wanted if keyword == "minimum" else value <= wanted, where
        elif keyword in ("minLength", "minItems"):
            if isinstance(value, str if keyword == "minLength" else list):
                assert len(value) >= wanted, where
        elif keyword in ("maxLength", "maxItems"):
            if isinstance(value, str if keyword == "maxLength" else list):
                assert len(value) <= wanted, where
        elif keyword == "items":
            for item in value if isinstance(value, list) else []:
                validate(item, wanted, where + "[]")
        elif keyword == "required":
            assert not isinstance(value, dict) or set(wanted) <= set(value), where
        elif keyword == "additionalProperties":
            assert wanted is False
            assert not isinstance(value, dict) or set(value) <= set(schema["properties"]), where
        elif keyword == "properties":
            for name, item in value.items() if isinstance(value, dict) else []:
                if name in wanted:
                    validate(item, wanted[name], f"{where}.{name}")
        else:
            assert keyword in ("$schema", "title", "description", "default"), keyword


def is_valid(value, schema):
    try:
        validate(value, schema)
    except AssertionError:
        return False
    return True


def test_schema_accepts_what_the_daemon_accepts(program, example):
    schema = json.loads(output_of(program, "--print-schema"))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    validate(yaml.safe_load(example.read_text()), schema)
    validate(yaml.safe_load(output_of(program, "--print-config", example)), schema)


def test_schema_defaults_follow_the_schema(program):
    schema = json.loads(output_of(program, "--print-schema"))
    n_defaults = 0
    for section in schema["properties"].values():
        section = section.get("items", section)
        for name, key in section["properties"].items():
            assert key["description"]
            # Which keys each kind needs is left to --check-config.
            assert ("default" in key) != (name in section["required"]) or "kind" in section["properties"]
            if "default" in key:
                validate(key["default"], key, name)
                n_defaults += 1
    assert n_defaults > 10


MISTAKES = [
    lambda config: config["time"].pop("sync_time"),
    lambda config: config["time"].update(sync_time="yesterday"),
    lambda config: config["time"].update(timebase="sundial"),
    lambda config: config["time"].update(adc_sample_rate=0),
    lambda config: config.update(recv=[]),
    lambda config: config.update(unheard_of={}),
    lambda config: config.pop("outputs"),
    lambda config: config.update(outputs=[]),
    lambda config: config["outputs"][0].update(name=""),
    lambda config: config["outputs"][0].update(buffers=1.5),
    lambda config: config["outputs"][0].update(surprise=1),
]


@pytest.mark.parametrize("mistake", range(len(MISTAKES)))
def test_schema_and_daemon_refuse_the_same(program, example, tmp_path, mistake):
    config = yaml.safe_load(example.read_text())
    MISTAKES[mistake](config)
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump(config))
    assert not is_valid(config, json.loads(output_of(program, "--print-schema")))
    result = run(program, "--check-config", bad)
    assert (result.returncode, result.stdout) == (EXIT_CONFIG, "")
    assert result.stderr.startswith(f"{bad}:")


# ---- The command line ------------------------------------------------------------------------------------------------------


def test_all_errors_at_once(program, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("tmie: {}\nhttp:\n  listne: 127.0.0.1:80\ntime:\n  sync_time: 1e30\n  adc_sample_rate: 1.7e9\n")
    for option in ([], ["--check-config"], ["--print-config"]):
        result = run(program, *option, bad)
        assert (result.returncode, result.stdout) == (EXIT_CONFIG, "")
        lines = result.stderr.splitlines()
        assert f"{bad}:1:1: unknown section 'tmie'; did you mean 'time'?" in lines
        assert f"{bad}:3:3: unknown key 'listne' in http; did you mean 'listen'?" in lines
        assert f"{bad}:5:14: time.sync_time must be a number from 0 to 4000000000 s, but '1e30' is given" in lines
        assert any(line.startswith(f"{bad}:1:1: the section outputs is missing: ") for line in lines)
        places = [tuple(map(int, line[len(str(bad)) + 1 :].split(":")[:2])) for line in lines]
        assert places == sorted(places)


def test_missing_file(program, tmp_path):
    result = run(program, "--check-config", tmp_path / "none.yaml")
    assert result.returncode == EXIT_CONFIG
    assert result.stderr == f"{tmp_path}/none.yaml: the file cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    "args",
    [[], ["a.yaml", "b.yaml"], ["--check-config"], ["--no-such-option", "a.yaml"],
     ["--check-config", "--print-config", "a.yaml"], ["--version", "a.yaml"]],
)
def test_bad_command_line(program, args):
    result = run(program, *args)
    assert (result.returncode, result.stdout) == (EXIT_CONFIG, "")
    assert result.stderr


def test_version_and_help(program):
    assert output_of(program, "--version").startswith(f"{program} ")
    text = output_of(program, "--help")
    for option in ("--check-config", "--print-config", "--print-schema", "--print-example", "--version", "--help"):
        assert option in text


def test_manual_pages(program):
    """Every option and every key, with its help."""
    command, configuration = (
        subprocess.run([ROOT / "scripts/manpages.py", BUILD, page], check=True, stdout=subprocess.PIPE, text=True).stdout
        for page in (f"{program}.1", f"{program}.yaml.5"))
    for option in ("check-config", "print-config", "print-schema", "print-example", "version", "help"):
        assert f"\n.It Fl Fl {option}" in command
    schema = json.loads(output_of(program, "--print-schema"))
    for name, section in schema["properties"].items():
        text = configuration.split(f"\n.Ss {name}\n")[1].split("\n.Ss ")[0]
        for key, value in section.get("items", section)["properties"].items():
            item = text.split(f"\n.It Ic {key}\n")[1].split("\n.It ")[0]
            described = value["description"].split(" Unit: ")[0].split()
            assert item.split()[:len(described)] == described
