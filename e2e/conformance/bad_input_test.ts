/** What plugins are given that nobody should: each time one error object, exit status 1, and nothing done. */
import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { runInNetns } from "../../testing/netns.ts";
import { findPlugin } from "../../plugins/registry.ts";
import { ENGINE_ENV, errorOf, finishedProcess, pluginLink } from "../../testing/binary.ts";
import { loadFixtures } from "../../testing/fixture.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import {
  type ConformanceNode,
  newConformanceNode,
  type NodeCallOptions,
  SUPPORTED_PLUGINS,
  workingConfig,
} from "../../testing/conformance.ts";

const FIXTURES = await loadFixtures();

/** 10 MB take a second each, and the same code reads them for all plugins. */
const lengthFor = (type: string): number => type === "bridge" || type === "host-local" ? 10_000_000 : 100_000;
const TIMEOUT_MS = 60_000;

/** Links, addresses, routes, rules and files: all that a plugin could have left. */
function stateOf({ host, container, directory }: ConformanceNode): readonly string[] {
  const programs = [["ip", "-j", "addr"], ["ip", "-j", "route", "show", "table", "all"], ["ip", "-j", "-6", "route"], [
    "ip",
    "-j",
    "rule",
  ]];
  return [
    ...[host, container].flatMap((netns) => programs.map((program) => runInNetns(netns, ...program))),
    runInNetns(host, "nft", "list", "ruleset"),
    ...(readdirSync(directory, { recursive: true }) as string[]).sort(),
  ];
}

/** Runs a test for every plugin on a node of its own, on which nothing may have changed afterwards. */
function everyPlugin(
  name: string,
  body: (type: string, node: ConformanceNode, config: JsonDocument, options: NodeCallOptions) => void,
): void {
  test.each(SUPPORTED_PLUGINS.map((type) => [type]))(`%s: ${name}`, (type) => {
    using node = newConformanceNode();
    const { config, options } = workingConfig(type, node);
    const before = stateOf(node);
    body(type, node, config, options);
    expect(stateOf(node)).toEqual(before);
    // The configuration that was spoiled would have worked.
    node.succeed(type, "ADD", config, options);
  }, TIMEOUT_MS);
}

everyPlugin("parameters that are missing or wrong have code 4, whatever the request", (type, node, config, options) => {
  const wrong: NodeCallOptions[] = [
    { containerId: "" },
    { containerId: "../c1" },
    { containerId: "c\n1" },
    { containerId: "c\0" },
    { ifname: "" },
    { ifname: "." },
    { ifname: "a/b" },
    { ifname: "a\0" },
    { ifname: "x".repeat(16) },
    { ifname: "x".repeat(1_000_000) },
  ];
  for (const command of ["ADD", "DEL", "CHECK"]) {
    for (const each of wrong) {
      const { code, msg } = node.fail(type, command, config, { ...options, ...each });
      expect([code, msg]).toEqual([4, expect.stringMatching(/CNI_CONTAINERID|CNI_IFNAME/)]);
    }
  }
  for (const command of ["ADD", "CHECK"]) expect(node.fail(type, command, config, { netns: null }).code).toBe(4);
  for (const command of ["", "add", "ADD ", "constructor", "__proto__"]) {
    expect(node.fail(type, command, config, options)).toMatchObject({
      code: 4,
      msg: expect.stringContaining("CNI_COMMAND"),
    });
  }
});

everyPlugin("all that is missing is named at once", (type, node, config) => {
  const { code, msg } = node.fail(type, "ADD", config, { containerId: "", ifname: "", netns: null });
  expect([code, msg.match(/CNI_\w+/g)]).toEqual([4, ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]]);
});

const UNREADABLE = [
  "",
  " ",
  "{",
  "}",
  "nope",
  "[]",
  "[{}]",
  "1",
  '"x"',
  "true",
  '{"name":"a"}{}',
  '{"name":"a"} x',
  '{"name"}',
];

everyPlugin("what is no JSON object has code 6", (type, node, _, options) => {
  for (const command of ["ADD", "DEL"]) {
    for (const text of UNREADABLE) {
      expect({ text, code: errorOf(node.exec(type, command, text, options)).code }).toEqual({ text, code: 6 });
    }
  }
});

/** What is wrong in what every request has, and the code. */
const spoiled = (length: number): readonly [object, number][] => [
  [{ name: undefined }, 7],
  [{ name: null }, 7],
  [{ name: "" }, 7],
  [{ name: 1 }, 6],
  [{ name: ["net"] }, 6],
  [{ name: "../net" }, 7],
  [{ name: "n\0t" }, 7],
  [{ name: "n".repeat(length) + "/" }, 7],
  [{ cniVersion: 1 }, 6],
  [{ cniVersion: {} }, 6],
  [{ cniVersion: "1.1" }, 1],
  [{ cniVersion: "9.9.9" }, 1],
  [{ cniVersion: "x".repeat(length) }, 1],
  [{ type: 1 }, 7],
  [{ prevResult: 1 }, 6],
  [{ prevResult: [] }, 6],
  [{ prevResult: "x".repeat(length) }, 6],
  [{ prevResult: { cniVersion: "7.0.0" } }, 6],
  [{ prevResult: { cniVersion: 1 } }, 6],
  [{ prevResult: { ips: {} } }, 6],
  [{ prevResult: { ips: [null] } }, 6],
  [{ prevResult: { ips: [{ address: "10.0.0.1" }] } }, 6],
  [{ prevResult: { interfaces: [null] } }, 6],
  [{ prevResult: { routes: [{}] } }, 6],
  [{ ipam: 1 }, 7],
  [{ ipam: "host-local" }, 7],
  [{ ipam: [] }, 7],
  [{ ipam: { type: 1 } }, 7],
  [{ ipam: { type: "../x" } }, 7],
  [{ ipam: { type: "x\0" } }, 7],
  [{ dns: [] }, 7],
  [{ dns: { nameservers: 1 } }, 7],
  [{ dns: { search: [null] } }, 7],
  [{ runtimeConfig: [] }, 7],
  [{ runtimeConfig: "x".repeat(length) }, 7],
  [{ capabilities: { x: 1 } }, 7],
  [{ capabilities: [] }, 7],
];

everyPlugin(
  "a request with something of a wrong kind has the code of that, and an error of a bearable size",
  (type, node, config, options) => {
    for (const [change, code] of spoiled(lengthFor(type))) {
      const { exitCode, stdout } = node.call(type, "ADD", { ...config, ...change }, options);
      const error = JSON.parse(stdout);
      const what = JSON.stringify(change).slice(0, 80);
      expect({ what, exitCode, code: error.code, long: stdout.length > 2000 }).toEqual({
        what,
        exitCode: 1,
        code,
        long: false,
      });
    }
  },
);

everyPlugin("what is wrong in keys of its own has code 7", (type, node, config, options) => {
  for (const change of FIXTURES[type]!.invalid) {
    const { code } = node.fail(type, "ADD", withChange(config, change), options);
    expect({ change, code }).toEqual({ change, code: 7 });
  }
});

/** Only an ADD has these. */
const ONLY_IN_ADD = ["prevResult", "runtimeConfig", "linkInContainer"];
/** What is wrong in view of the container, of a result, or of a device that may be away. */
const FOUND_BY_ADD: Readonly<Record<string, readonly object[]>> = {
  firewall: [{ ingressPolicy: "isolated" }],
  "host-device": [{ device: null, kernelpath: "/sys/devices/../class" }],
  ptp: [{ ipam: { type: "static", addresses: [{ address: "10.5.0.9/24" }], gateway: null } }],
  tap: [{ bridge: "nosuch" }],
  tuning: [{ sysctl: { "net.nosuch": "1" } }],
};

everyPlugin("STATUS refuses what ADD refuses, as far as that can be told without a container", (type, node, config) => {
  const accepted = FIXTURES[type]!.invalid.filter((change) =>
    !ONLY_IN_ADD.some((key) => key in change) && node.exec(type, "STATUS", withChange(config, change)).exitCode === 0
  );
  expect(accepted).toEqual([...FOUND_BY_ADD[type] ?? []]);
});

/** The configuration with other keys, also within `ipam`. */
function withChange(config: JsonDocument, change: JsonDocument): JsonDocument {
  const ipam = change.ipam instanceof Object ? { ipam: { ...config.ipam, ...change.ipam } } : {};
  return { ...config, ...change, ...ipam };
}

everyPlugin("nulls mean that a key is absent", (type, node, config) => {
  const nulls = { dns: null, args: null, capabilities: null, runtimeConfig: null, unknown: null };
  node.succeed(type, "STATUS", { ...config, ...nulls });
});

everyPlugin("of a key that is there twice the last counts, whatever its case", (type, node, config, options) => {
  const text = (...more: string[]) =>
    `{${["cniVersion", "type"].map((key) => `"${key}":${JSON.stringify({ cniVersion: "1.1.0", type }[key])}`)},` +
    `${more.join(",")},${JSON.stringify(config).slice(1, -1) || '"x":1'}}`;
  const status = (stdin: string) => node.exec(type, "STATUS", stdin, options);
  expect(status(text('"name":"/"', '"name":"net"'))).toMatchObject({ exitCode: 0, stdout: "" });
  expect(errorOf(status(text('"name":"net"', '"name":"/"'))).code).toBe(7);
  expect(errorOf(status(text('"NAME":"net"', '"Name":"/"'))).code).toBe(7);
});

/** Runs a plugin with bytes on stdin. */
function execBytes(node: ConformanceNode, type: string, stdin: Uint8Array) {
  const env = { ...ENGINE_ENV, CNI_COMMAND: "ADD", CNI_NETNS: node.container.path };
  const child = node.host.run(() => Bun.spawnSync([pluginLink(type)], { env, stdin, cwd: "/" }));
  return finishedProcess(child);
}

everyPlugin("text that is no UTF-8 has code 6", (type, node, config) => {
  const document = JSON.stringify({ cniVersion: "1.1.0", name: "net", type, ...config, label: "HERE" });
  for (const bytes of ["\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf", "\xf5\x80\x80\x80"]) {
    const stdin = Buffer.from(document.replace("HERE", bytes), "latin1");
    const { code, msg } = errorOf(execBytes(node, type, stdin));
    expect([code, msg]).toEqual([6, expect.stringContaining("UTF-8")]);
  }
});

everyPlugin("long text of any kind ends as one error", (type, node) => {
  for (const piece of ["[", '"\\', "x"]) {
    const finished = execBytes(node, type, Buffer.from(piece.repeat(lengthFor(type) / piece.length)));
    expect([errorOf(finished).code, finished.stdout.length < 2000]).toEqual([6, true]);
  }
});

everyPlugin("a long request is one like others, one of 10,000 levels has code 6", (type, node, config) => {
  const request = JSON.stringify({ cniVersion: "1.1.0", name: "net", type, ...config, key: "KEY" });
  const long = JSON.stringify("x".repeat(lengthFor(type)));
  expect(node.exec(type, "STATUS", request.replace('"KEY"', long))).toMatchObject({ exitCode: 0, stdout: "" });
  expect(errorOf(node.exec(type, "STATUS", request.replace('"KEY"', `${long},"name":"/"`))).code).toBe(7);
  const deep = `${"[".repeat(10_000)}${"]".repeat(10_000)}`;
  expect(errorOf(node.exec(type, "STATUS", request.replace('"KEY"', deep))).code).toBe(6);
});

test.each([
  ["a namespace that is none", "/etc/passwd"],
  ["a namespace that does not exist", "/nonexistent"],
  ["the plugin's own namespace", "host"],
])("%s has code 8 and is refused before anything is done", (_, path) => {
  for (const type of SUPPORTED_PLUGINS.filter((each) => !findPlugin(each)!.ignoresNetns)) {
    using node = newConformanceNode();
    const { config, options } = workingConfig(type, node);
    const before = stateOf(node);
    const netns = path === "host" ? node.host : path;
    for (const command of ["ADD", "CHECK"]) {
      expect(node.fail(type, command, config, { ...options, netns }).code).toBe(8);
    }
    expect(stateOf(node)).toEqual(before);
  }
});
