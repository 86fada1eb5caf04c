import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expectedLines, runExample } from "./testing/examples.ts";
import { netnsTest, newNamespaces } from "./testing/netns.ts";
import {
  convertResult,
  formatResult,
  type HostContext,
  loadNetwork,
  type Netns,
  openNetns,
  parseCidr,
  parseNetworkConfigList,
  parseResult,
  plugin,
  type Result,
  Runtime,
  type RuntimeOptions,
  schema,
  serve,
  VERSIONS,
} from "./mod.ts";

const directory = mkdtempSync(join(tmpdir(), "cni-mod-"));
afterAll(() => rmSync(directory, { recursive: true }));

interface Example {
  /** What it documents, and which of several it is. */
  readonly name: string;
  readonly code: string;
}

/** What `deno doc --json` says of mod.ts. */
interface Documentation {
  readonly jsDoc?: { readonly tags?: readonly { readonly kind: string; readonly doc?: string }[] };
}
interface Symbol {
  readonly name: string;
  readonly declarations: readonly (Documentation & { readonly kind: string })[];
}
interface Module {
  readonly module_doc: Documentation["jsDoc"];
  readonly symbols: readonly Symbol[];
}

function readDocumentation(): Module {
  const { stdout } = Bun.spawnSync([join(import.meta.dir, "node_modules/.bin/deno"), "doc", "--json", "mod.ts"], {
    cwd: import.meta.dir,
    stderr: "ignore",
  });
  return Object.values<Module>(JSON.parse(stdout.toString()).nodes)[0]!;
}

function examplesIn(name: string, jsDoc: Documentation["jsDoc"]): Example[] {
  const examples = (jsDoc?.tags ?? []).filter(({ kind }) => kind === "example");
  return examples.map(({ doc = "" }, i) => ({
    name: `${name} ${i + 1}`,
    code: /^```ts\n([^]*?)^```$/m.exec(doc)?.[1] ?? "",
  }));
}

/** The examples of a symbol; of a namespace, those of its module. */
function examplesOf({ name, declarations }: Symbol): Example[] {
  return declarations.flatMap(({ kind, jsDoc }) =>
    kind === "namespace" ? examplesInModule(name) : examplesIn(name, jsDoc)
  );
}

/** `deno doc` does not pass on what stands at the top of the module behind a namespace. */
function examplesInModule(name: string): Example[] {
  const text = readFileSync(join(import.meta.dir, `spec/${name}.ts`), "utf8");
  const doc = text.slice(0, text.indexOf("*/")).replaceAll(/^ \* ?/gm, "");
  return examplesIn(name, { tags: [{ kind: "example", doc }] });
}

const { module_doc, symbols } = readDocumentation();
const values = symbols.filter(({ declarations }) =>
  declarations.some(({ kind }) => !["interface", "typeAlias"].includes(kind))
);
const examples = [...examplesIn("the module", module_doc), ...values.flatMap(examplesOf)];
const fileOf = ({ name }: Example) => join(directory, `${name.replaceAll(" ", "-")}.ts`);
for (const example of examples) {
  writeFileSync(fileOf(example), example.code.replace('"./mod.ts"', JSON.stringify(join(import.meta.dir, "mod.ts"))));
}

test("everything that can be called has an example", () => {
  const without = values.filter((symbol) => examplesOf(symbol).every(({ code }) => code === "")).map(({ name }) =>
    name
  );
  expect(without).toEqual([]);
  expect(examples.length).toBeGreaterThan(25);
});

test("the examples have the types that they should", () => {
  const { exitCode, stderr } = Bun.spawnSync([
    join(import.meta.dir, "node_modules/.bin/deno"),
    ...["check", "--quiet", "--config", join(import.meta.dir, "deno.json")],
    ...examples.map(fileOf),
  ], { cwd: import.meta.dir, env: { ...process.env, NO_COLOR: "1" } });
  expect(stderr.toString()).toBe("");
  expect(exitCode).toBe(0);
});

test.each(examples.map((example) => [example.name, example] as const))(
  "the example of %s prints what it says",
  (_, example) => {
    using namespaces = newNamespaces();
    expect(runExample(namespaces, fileOf(example))).toEqual({ lines: expectedLines(example.code), stderr: "" });
  },
);

const greet = plugin({
  name: "greet",
  about: "Says hello and changes nothing",
  config: schema.object({ greeting: schema.withDefault(schema.string, "hello") }),
  add: ({ config, log, prevResult }) => {
    log(config.greeting);
    return prevResult ?? {};
  },
  del: () => {},
  check: () => {},
});
const ADDRESS = "10.1.0.2/16";
const inVersion = {
  "0.2.0": { cniVersion: "0.2.0", ip4: { ip: ADDRESS }, dns: {} },
  "0.4.0": { cniVersion: "0.4.0", ips: [{ version: "4", address: ADDRESS }], dns: {} },
  "1.1.0": { cniVersion: "1.1.0", ips: [{ address: ADDRESS }] },
} as const;

netnsTest("serve() gives a plugin's result in the version that was asked for", ({ host, container }) => {
  const log: string[] = [];
  for (const [cniVersion, expected] of Object.entries(inVersion)) {
    for (const prevResult of Object.values(inVersion)) {
      const greeting = `hi from ${cniVersion}`;
      const stdin = JSON.stringify({ cniVersion, name: "web", type: "greet", greeting, prevResult });
      const env = { CNI_CONTAINERID: "c1", CNI_IFNAME: "eth0", CNI_NETNS: container.path };
      const { exitCode, stdout } = serve(greet, { command: "ADD", env, stdin }, alone(host, log));
      expect(JSON.parse(stdout)).toEqual(expected);
      expect(exitCode).toBe(0);
      expect(log.pop()).toBe(`greet: ${greeting}`);
    }
  }
});

netnsTest("serve() names what is wrong with a plugin's configuration", ({ host, container }) => {
  const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "web", type: "greet", greeting: 1 });
  const env = { CNI_CONTAINERID: "c1", CNI_IFNAME: "eth0", CNI_NETNS: container.path };
  const { exitCode, stdout } = serve(greet, { command: "ADD", env, stdin }, alone(host, []));
  expect(JSON.parse(stdout)).toEqual({
    cniVersion: "1.1.0",
    code: 7,
    msg: 'Cannot use network "web": greeting must be a string: got 1',
  });
  expect(exitCode).toBe(1);
});

/** HostContext with no other plugin. */
function alone(host: Netns, log: string[]): HostContext {
  const locate = () => {
    throw new Error("no other plugin was to be called");
  };
  return { host, openNetns, locate, isIpam: locate, invoke: locate, log: (message) => void log.push(message) };
}

test("convertResult() converts between any two forms that can say the same", () => {
  for (const from of Object.values(inVersion)) {
    for (const [version, expected] of Object.entries(inVersion)) {
      expect(convertResult(from, version as keyof typeof inVersion)).toEqual(expected);
    }
  }
});

test("convertResult() is parsing and formatting, and needs no version in the document", () => {
  const { cniVersion: _, ...unversioned } = inVersion["0.2.0"];
  for (const version of VERSIONS) {
    const result = parseResult(inVersion["0.2.0"], "0.2.0");
    expect(convertResult(unversioned, version)).toEqual({ ...formatResult(result, version) });
  }
  expect(() => convertResult({ ips: [{}] }, "1.1.0")).toThrow("ips[0].address must be");
  expect(() => convertResult({ cniVersion: "9.9.9" }, "1.1.0")).toThrow('unsupported version "9.9.9"');
});

/** A runtime whose plugins and memory belong to the test. */
function newRuntime(settings: Partial<RuntimeOptions> = {}) {
  const log: string[] = [];
  const cacheDirectory = mkdtempSync(join(directory, "cache-"));
  const runtime = new Runtime({
    env: process.env,
    plugins: [greet],
    pluginDirectories: [],
    cacheDirectory,
    log: (message) => void log.push(message),
    ...settings,
  });
  return { runtime, log, cacheDirectory };
}

const attachment = { containerId: "c1", ifname: "eth0" };
const given: Result = { ips: [{ address: parseCidr(ADDRESS) }] };
const give = plugin({ ...greet, name: "give", add: () => given });

netnsTest("Runtime runs a network of plugins of one's own", ({ host, container }) => {
  const { runtime, log, cacheDirectory } = newRuntime({ plugins: [give, greet] });
  writeFileSync(
    join(cacheDirectory, "web.conflist"),
    '{ "cniVersion": "1.1.0", "name": "web", "plugins": [{ "type": "give" }, { "type": "greet" }] } // with a comment',
  );
  const network = loadNetwork("web", { directory: cacheDirectory });
  host.run(() => {
    runtime.status(network);
    expect(runtime.add(network, { ...attachment, netns: container.path, args: [["K", "V"]] })).toEqual(given);
    expect(log).toEqual(["greet: hello"]);
    expect(runtime.attachments()).toEqual([{
      network: "web",
      ...attachment,
      state: "attached",
      netns: container.path,
      args: [["K", "V"]],
      capabilityArgs: {},
      result: given,
    }]);
    expect(runtime.attachments("db")).toEqual([]);
    runtime.check(network, attachment);
    const requests = runtime.deriveRequests("web", { verb: "CHECK", parameters: attachment });
    expect(requests.map(({ type }) => type)).toEqual(["give", "greet"]);
    expect(JSON.parse(requests[0]!.request).prevResult).toEqual(inVersion["1.1.0"]);
    runtime.del("web", attachment);
    expect(runtime.attachments()).toEqual([]);
    expect(() => runtime.check(network, attachment)).toThrow("no result of an ADD is known");
    runtime.add(network, { ...attachment, netns: container.path });
    runtime.gc(network, []);
    expect(runtime.attachments()).toEqual([]);
  });
});

netnsTest("Runtime prefers one's own plugin, then a program, then the built-in one", ({ host, container }) => {
  const bin = mkdtempSync(join(directory, "bin-"));
  const says = (text: string) =>
    `#!/bin/sh\ncat >/dev/null; echo '{"cniVersion":"1.1.0","dns":{"domain":"${text}"}}'\n`;
  for (const name of ["greet", "loopback"]) writeFileSync(join(bin, name), says("program"), { mode: 0o755 });
  const { runtime } = newRuntime({ pluginDirectories: [bin] });
  const list = (type: string) => parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: type, type }));
  const add = (type: string) =>
    host.run(() => runtime.add(list(type), { containerId: "c1", ifname: "lo", netns: container.path }));
  expect(add("greet")).toEqual({});
  expect(add("loopback")).toEqual({ dns: { domain: "program" } });
  rmSync(join(bin, "loopback"));
  expect(
    host.run(() =>
      newRuntime({ pluginDirectories: [bin] }).runtime.add(list("loopback"), {
        containerId: "c1",
        ifname: "lo",
        netns: container.path,
      })
    ).interfaces?.[0]?.name,
  ).toBe("lo");
});

netnsTest("Runtime keeps what plugins say apart from what it says itself", ({ host, container }) => {
  const said: string[] = [];
  const { runtime, log, cacheDirectory } = newRuntime({ pluginLog: (message) => void said.push(message) });
  const network = parseNetworkConfigList('{"cniVersion":"1.1.0","name":"web","type":"greet"}');
  host.run(() => void runtime.add(network, { ...attachment, netns: container.path }));
  expect([said, log]).toEqual([["greet: hello"], []]);
  writeFileSync(join(cacheDirectory, "results/web-c2-eth0"), "half");
  expect(host.run(() => runtime.attachments()).map(({ containerId }) => containerId)).toEqual(["c1"]);
  expect([said.length, log]).toEqual([1, [expect.stringContaining("web-c2-eth0")]]);
});

netnsTest("Runtime tells the configuration that an attachment was made with, and none of what it cannot read", ({
  host,
  container,
}) => {
  const { runtime, cacheDirectory } = newRuntime();
  const network = parseNetworkConfigList('{"cniVersion":"1.1.0","name":"web","type":"greet"}');
  host.run(() => void runtime.add(network, { ...attachment, netns: container.path }));
  expect(runtime.attachedConfiguration("web", attachment)).toBe(network.text);
  writeFileSync(join(cacheDirectory, "results/web-c2-eth0"), "half");
  for (const containerId of ["c2", "c3", "../c1", ""]) {
    expect(runtime.attachedConfiguration("web", { ...attachment, containerId })).toBeUndefined();
  }
});

test("Runtime finds keys that are likely to be misspelt, also those of plugins of one's own", () => {
  const { runtime } = newRuntime();
  const network = parseNetworkConfigList(
    '{"name":"web","plugins":[{"type":"greet","greting":"hi"},{"type":"x","y":1}]}',
  );
  expect(runtime.unknownKeys(network)).toEqual([
    'network "web": plugins[0].greting is not read; did you mean "greeting"?',
  ]);
});

netnsTest("Runtime opens nothing that it leaves open", ({ host, container }) => {
  const { runtime } = newRuntime();
  const network = parseNetworkConfigList('{"cniVersion":"1.1.0","name":"web","type":"greet"}');
  const cycle = () =>
    host.run(() => {
      runtime.add(network, { ...attachment, netns: container.path });
      runtime.attachments();
      runtime.del(network, attachment);
    });
  cycle();
  // Without a process of its own, whose pipes might be closed a little later.
  const open = () => readdirSync("/proc/self/fd").length;
  const before = open();
  for (let i = 0; i < 20; i++) cycle();
  expect(open() - before).toBeLessThan(20);
});

netnsTest("Runtime refuses what cannot be, before anything is done", ({ host, container }) => {
  const { runtime, log } = newRuntime();
  const network = parseNetworkConfigList('{"cniVersion":"1.1.0","name":"web","type":"greet"}');
  const codeOf = (parameters: object) => {
    try {
      host.run(() => void runtime.add(network, { ...attachment, netns: container.path, ...parameters }));
    } catch (error) {
      return (error as { code?: unknown }).code;
    }
    return undefined;
  };
  for (const bad of ["", "a\0b", "../x", "a/b", "a b"]) expect(codeOf({ containerId: bad })).toBe(4);
  for (const bad of ["", "a\0b", "..", "a/b", "a b", "x".repeat(16)]) expect(codeOf({ ifname: bad })).toBe(4);
  for (const bad of ["", "/run/netns/a\0b"]) expect(codeOf({ netns: bad })).toBe(4);
  for (const bad of [[["K", "V\0"]], [["", "V"]], [["K;", "V"]]]) expect(codeOf({ args: bad })).toBe(4);
  for (const bad of ["/nonexistent", directory, `${directory}/nonexistent`]) expect(codeOf({ netns: bad })).toBe(8);
  expect(log).toEqual([]);
  expect(host.run(() => runtime.attachments())).toEqual([]);
});
