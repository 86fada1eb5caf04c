import { expect, test } from "bun:test";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { useDirectory } from "../testing/directory.ts";
import { type CniError, ConfigError } from "../spec/error.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { decodeUtf8Configuration, loadNetwork } from "./load.ts";

const root = useDirectory("cni-load-");

interface Loaded {
  readonly source: string | undefined;
  readonly types: readonly string[];
  readonly text: string;
  readonly log: readonly string[];
}

let directories = 0;

/** A directory with these files. */
function directory(files: Readonly<Record<string, string>>): string {
  const path = join(root, String(directories++));
  mkdirSync(path);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), text);
  }
  return path;
}

function load(network: string, path: string, stdin = ""): Loaded {
  const log: string[] = [];
  const list = loadNetwork(network, { directory: path, readStdin: () => stdin, log: (line) => log.push(line) });
  return {
    source: list.source?.replace(`${path}/`, ""),
    types: list.plugins.map(({ type }) => type),
    text: list.text,
    log,
  };
}

function failureOf(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}

const list = (name: string, ...types: string[]) =>
  JSON.stringify({ cniVersion: "1.1.0", name, plugins: types.map((type) => ({ type })) });
const single = (name: string, type: string) => JSON.stringify({ cniVersion: "1.1.0", name, type });

test.each([
  ["the first by bytes", { "9-b.conflist": list("web", "b"), "10-a.conflist": list("web", "a") }, "10-a.conflist"],
  ["upper before lower case", { "a.conflist": list("web", "a"), "B.conflist": list("web", "b") }, "B.conflist"],
  ["a list before a single plugin", { "1.conf": single("web", "a"), "2.conflist": list("web", "b") }, "2.conflist"],
  ["a single plugin", { "1.conf": single("web", "a") }, "1.conf"],
  ["a list in a .conf", { "1.conf": list("web", "a") }, "1.conf"],
  ["a single plugin in a .conflist", { "1.conflist": single("web", "a") }, "1.conflist"],
  ["a .json", { "1.json": list("web", "a") }, "1.json"],
  ["a .conflist without a name", { ".conflist": list("web", "a"), "a.conflist": list("web", "b") }, ".conflist"],
  ["a .conf before a .json by its name", { "a.json": list("web", "a"), "b.conf": list("web", "b") }, "a.json"],
  [
    "the first by bytes beyond 16 bits",
    { "\u{10000}.conf": list("web", "a"), "\uffee.conf": list("web", "b") },
    "\uffee.conf",
  ],
  ["a .jsonc with comments", { "1.jsonc": `// why\n${list("web", "a")}` }, "1.jsonc"],
  [
    "no other ending",
    { "1.conflist.bak": list("web", "a"), "2.CONF": list("web", "b"), "3.conf": list("web", "c") },
    "3.conf",
  ],
  ["not a directory", { "1.conflist/x": "", "2.conflist": list("web", "a") }, "2.conflist"],
  ["not another network", { "1.conflist": list("db", "a"), "2.conflist": list("web", "b") }, "2.conflist"],
])("loadNetwork() by name takes %s", (_, files, expected) => {
  expect(load("web", directory(files)).source).toBe(expected);
});

test("loadNetwork() goes on behind a file that it cannot use, and names it", () => {
  const path = directory({
    "1.conflist": "{",
    "2.conflist": JSON.stringify({ cniVersion: "9.9.9", name: "other", plugins: [{ type: "a" }] }),
    "3.conflist": JSON.stringify({ cniVersion: "1.0.0", name: "db", plugins: [{}] }),
    "4.conflist": list("web", "a"),
    "5.conflist": "{",
  });
  const { source, log } = load("web", path);
  expect(source).toBe("4.conflist");
  expect(log.map((line) => line.match(/[0-9]\.conflist/)?.[0])).toEqual(["1.conflist", "2.conflist", "3.conflist"]);
  expect(log[2]).toContain("plugins[0].type");
});

test("loadNetwork() goes on behind what is no text, no file, or too much of it", () => {
  const path = directory({ "3.conflist": `{"name":"x","plugins":${"[".repeat(5000)}`, "5.conflist": list("web", "a") });
  writeFileSync(join(path, "1.conflist"), Buffer.from('{"name":"web","plugins":[{"type":"caf\xe9"}]}', "latin1"));
  symlinkSync("nowhere", join(path, "2.conflist"));
  writeFileSync(join(path, "4.conflist"), " ".repeat(5 << 20));
  const { source, log } = load("web", path);
  expect(source).toBe("5.conflist");
  expect(log).toEqual([
    expect.stringMatching(/1\.conflist": Cannot parse .*: it is not UTF-8$/),
    expect.stringMatching(/2\.conflist": .*ENOENT/),
    expect.stringContaining('3.conflist": Cannot parse'),
    expect.stringContaining('4.conflist": Cannot parse'),
  ]);
});

test("loadNetwork() follows links to files", () => {
  const path = directory({ "real/web.x": list("web", "a") });
  symlinkSync("real/web.x", join(path, "1.conflist"));
  expect(load("web", path).source).toBe("1.conflist");
});

test("loadNetwork() fails when the network that was asked for has a version that is not spoken, whatever follows", () => {
  const path = directory({
    "1.conflist": JSON.stringify({ cniVersion: "9.9.9", name: "web", plugins: [{ type: "a" }] }),
    "2.conflist": list("web", "a"),
  });
  expect(failureOf(() => load("web", path))).toMatchObject({ code: 1 });
});

test("loadNetwork() looks neither into later files nor into the directories of other networks", () => {
  const path = directory({ ...loose, "0.conflist": list("db", "a"), "db/1.conf": "{", "2.conflist": "{" });
  expect(load("web", path).log).toEqual([]);
});

test("loadNetwork() fails when the network that was asked for is the broken one", () => {
  const path = directory({
    "1.conflist": '{\n  "cniVersion": "1.0.0", "name": "web",\n  "plugins": [{ "type": 5 }]\n}',
    "2.conflist": list("web", "a"),
  });
  const error = failureOf(() => load("web", path)) as ConfigError;
  expect(error).toBeInstanceOf(ConfigError);
  expect(error.locationText).toBe(`${path}/1.conflist:3:25`);
});

test("loadNetwork() names the networks that are there, and the files it could not use", () => {
  const path = directory({ "1.conflist": list("db", "a"), "2.conf": single("dmz", "b"), "3.conf": "[" });
  const error = failureOf(() => load("web", path)) as CniError;
  expect(error.code).toBe(7);
  expect(error.message).toBe(`Cannot find network "web" in "${path}"`);
  expect(error.details).toStartWith('the networks there are "db", "dmz"; ');
  expect(error.details).toContain("3.conf");
});

test("loadNetwork() says when there is no directory", () => {
  const error = failureOf(() => load("web", join(root, "absent"))) as CniError;
  expect(error.details).toBe('the directory does not exist; "default" is built in');
});

test("loadNetwork() says which network a mistyped name may be, the default network included", () => {
  const path = directory({ "1.conflist": list("web", "a") });
  for (const [name, meant] of [["defualt", "default"], ["wbe", "web"]] as const) {
    const { message, details } = failureOf(() => load(name, path)) as CniError;
    expect(message).toBe(`Cannot find network "${name}" in "${path}"; did you mean "${meant}"?`);
    expect(details).toBe('the networks there are "web"; "default" is built in');
  }
});

test.each([
  ["no JSON", '{ "name": "default", "plugins": [{ "type": "a" } { "type": "b" }] }'],
  ["no name", '{ "plugins": [{ "type": "a" }] }'],
  ["a name of another spelling", '{ "Name": "default", "plugins": [{ "type": "a" }] }'],
  ["nothing in it", ""],
])("loadNetwork() does not take the built-in network where a file with %s may be meant", (_, text) => {
  const path = directory({ "1.conflist": list("web", "a"), "2.conflist": text });
  const { code, message, details } = failureOf(() => load("default", path)) as CniError;
  expect(code).toBe(7);
  expect(message).toBe(
    `Cannot use the built-in network "default": "${path}" may configure it in a file that cannot be understood`,
  );
  expect(details).toStartWith(`"${path}/2.conflist": Cannot `);
});

test.each([
  ["of another one", '{ "name": "web", "plugins": 5 }'],
  ["a plugin without a name", '{ "cniVersion": "0.3.1", "type": "loopback" }'],
  ["an object without anything", "{}"],
  ["no object", "[]"],
])("loadNetwork() takes the built-in network beside a file that cannot be used and is %s", (_, text) => {
  const { types, log } = load("default", directory({ "99.conf": text }));
  expect([types, log]).toEqual([["bridge", "portmap", "firewall"], [expect.stringContaining("99.conf")]]);
});

test("loadNetwork() takes the built-in network beside a file that is gone, and not beside one that cannot be read", () => {
  const path = directory({});
  symlinkSync("nowhere", join(path, "1.conflist"));
  const { types, log } = load("default", path);
  expect([types, log]).toEqual([["bridge", "portmap", "firewall"], [expect.stringContaining("1.conflist")]]);
  symlinkSync("2.conflist", join(path, "2.conflist"));
  const { details } = failureOf(() => load("default", path)) as CniError;
  expect(details).toStartWith(`"${path}/2.conflist": `);
  expect(details).toContain("ELOOP");
});

test("loadNetwork() takes a configured default network whatever else there is", () => {
  const path = directory({ "1.conflist": "{", "2.conflist": list("default", "mine") });
  expect(load("default", path).types).toEqual(["mine"]);
});

test("loadNetwork() has a default network until there is a configuration of that name", () => {
  const builtIn = load("default", join(root, "absent"));
  expect(builtIn.types).toEqual(["bridge", "portmap", "firewall"]);
  expect(parseNetworkConfigList(builtIn.text).cniVersion).toBe("1.1.0");
  expect(load("default", directory({ "1.conflist": list("db", "a") })).types).toEqual([
    "bridge",
    "portmap",
    "firewall",
  ]);
  expect(load("default", directory({ "1.conflist": list("default", "mine") })).types).toEqual(["mine"]);
});

test("decodeUtf8Configuration() refuses what is not UTF-8, and takes a byte order mark for nothing", () => {
  expect(() => decodeUtf8Configuration(new Uint8Array([0x22, 0xff, 0x22]), "x.conf")).toThrow(
    "Cannot parse x.conf: it is not UTF-8",
  );
  expect(decodeUtf8Configuration(new Uint8Array([0xef, 0xbb, 0xbf, 0x7b, 0xc3, 0xa9]), "x.conf")).toBe("{é");
});

test("loadNetwork() reads a path and standard input", () => {
  const path = directory({ "any.name": list("web", "a") });
  expect(load(`${path}/any.name`, "/nonexistent").types).toEqual(["a"]);
  expect(load("-", "/nonexistent", list("web", "b")).types).toEqual(["b"]);
  expect(failureOf(() => load(`${path}/absent`, path))).toMatchObject({ code: "ENOENT" });
  expect(failureOf(() => load("-", path, "{]"))).toBeInstanceOf(SyntaxError);
});

const loose = { "1.conflist": list("web", "a"), "web/2.conf": '{"type":"c"}', "web/10.conf": '{"type":"b"}' };

test("loadNetwork() appends the plugins of the network's directory, by file name", () => {
  const path = directory({ ...loose, "web/3.conflist": "{", "web/4.conf/x": "" });
  expect(load("web", path).types).toEqual(["a", "b", "c"]);
  expect(load(`${path}/1.conflist`, "/nonexistent").types).toEqual(["a", "b", "c"]);
});

test("loadNetwork() gives a text with all the plugins, which stands for itself", () => {
  const { text } = load("web", directory(loose));
  const { plugins, loadOnlyInlinedPlugins } = parseNetworkConfigList(text);
  expect(plugins.map(({ type }) => type)).toEqual(["a", "b", "c"]);
  expect(loadOnlyInlinedPlugins).toBe(true);
});

test("loadNetwork() leaves out the plugins of the directory for a list that says so, and for a single plugin", () => {
  const only = JSON.stringify({ name: "web", loadOnlyInlinedPlugins: true, plugins: [{ type: "a" }] });
  expect(load("web", directory({ ...loose, "1.conflist": only })).types).toEqual(["a"]);
  const { "1.conflist": _, ...rest } = loose;
  expect(load("web", directory({ ...rest, "1.conf": single("web", "a") })).types).toEqual(["a"]);
});

test("loadNetwork() takes a list whose plugins all stand in the directory, and refuses one without any", () => {
  const empty = JSON.stringify({ cniVersion: "1.1.0", name: "web" });
  expect(load("web", directory({ ...loose, "1.conflist": empty })).types).toEqual(["b", "c"]);
  expect(failureOf(() => load("web", directory({ "1.conflist": empty })))).toBeInstanceOf(ConfigError);
});

test("loadNetwork() says what the missing plugins of a list may have been meant to be", () => {
  const path = directory({ "1.conflist": JSON.stringify({ name: "web", plugin: [{ type: "a" }], comment: "" }) });
  expect((failureOf(() => load("web", path)) as ConfigError).message).toBe(
    'Cannot use network "web": plugins must be an array with at least one plugin: ' +
      'got nothing; plugin is not read; did you mean "plugins"?',
  );
});

test("loadNetwork() fails on a broken plugin file of the network that was asked for", () => {
  const path = directory({ ...loose, "web/1.conf": "{}" });
  expect(failureOf(() => load("web", path))).toBeInstanceOf(ConfigError);
  writeFileSync(join(path, "web/1.conf"), Buffer.from([0x7b, 0xff, 0x7d]));
  expect(failureOf(() => load("web", path))).toBeInstanceOf(SyntaxError);
});

test("loadNetwork() says which of two files with one name is used", () => {
  const files = {
    "1.conflist": list("web", "a"),
    "2.conflist": "{",
    "3.conflist": list("lan", "b").replace("1.1.0", "web"),
    "4.conf": single("web", "c"),
    "5.conf": single("web", "d"),
  };
  const path = directory(files);
  expect(load("web", path)).toMatchObject({
    types: ["a"],
    log: [`network "web" is in two files: "${path}/1.conflist" is used, and "${path}/4.conf" is not`],
  });
  expect(load("web", directory({ "1.conf": single("web", "c"), "2.conf": single("webs", "d") })).log).toEqual([]);
});

test("loadNetwork() names keys that an object has twice, with the file that has them", () => {
  const text = `{ "name": "web", "plugins": [
    { "type": "a", "mtu": 1, "_note": 1, "_note": 2, "x-a": { "b": 1, "b": 2 } }, // "mtu": 2
    { "type": "b", "mtu": 1,
      "mtu": 2, "mtu": 3, "ipam": { "mtu": 4 } }
  ], "name": "web" }`;
  const said = (source: string) => [
    `network "web": plugins[1].mtu is there more than once, and the last one counts (${source}:4:24)`,
    `network "web": name is there more than once, and the last one counts (${source}:5:14)`,
  ];
  const path = directory({ "1.conflist": text, "web/1.conf": '{ "type": "c", "type": "d" }' });
  const ofPluginFile = `network "web": type is there more than once, and the last one counts (${path}/web/1.conf:1:24)`;
  expect(load("web", path)).toMatchObject({
    types: ["a", "b", "d"],
    log: [...said(`${path}/1.conflist`), ofPluginFile],
  });
  expect(load("-", path, text).log).toEqual(said("standard input"));
  const log: string[] = [];
  loadNetwork(`${path}/1.conflist`, { log: (message) => log.push(message) });
  expect(log).toEqual([...said(`${path}/1.conflist`), ofPluginFile]);
});

test("loadNetwork() says of an object that is there twice nothing of what is in it", () => {
  const text = `{ "name": "web", "plugins": [{ "type": "a",
    "ipam": { "type": "x", "ranges": [[{ "subnet": "a", "subnet": "b" }]] },
    "ipam": { "type": "y", "ranges": [[{ "subnet": "c" }]] }, "ipam2": {}, "ipam2": {} }] }`;
  const path = directory({ "1.conflist": text });
  const said = (key: string) => expect.stringContaining(`network "web": plugins[0].${key} is there more than once,`);
  expect(load("web", path).log).toEqual([said("ipam"), said("ipam2")]);
});

test("loadNetwork() does not say what is there twice if that is not wanted, but which files cannot be used", () => {
  const text = '{ "name": "web", "plugins": [{ "type": "a", "type": "b" }] }';
  const path = directory({
    "0.conflist": "{",
    "1.conflist": text,
    "2.conflist": text,
    "web/1.conf": '{ "type": "c", "type": "d" }',
  });
  const log: string[] = [];
  const options = {
    directory: path,
    readStdin: () => text,
    log: (line: string) => log.push(line),
    logDuplicates: false,
  };
  for (const network of ["web", "-", `${path}/1.conflist`]) loadNetwork(network, options);
  expect(log).toEqual([expect.stringMatching(/^Ignoring configuration file /)]);
});
