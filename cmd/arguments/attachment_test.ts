import { expect, test } from "bun:test";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { containerIdOfNetns } from "../../runtime/container_id.ts";
import { DEFAULT_NETWORK } from "../../runtime/default_network.ts";
import { parseOptions } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";
import {
  ATTACHMENT_OPTIONS,
  IFNAME_OPTION,
  parseAttachment,
  runtimeArguments,
  runtimeArgumentsForDel,
} from "./attachment.ts";
import { ALL_OPTION, parseValid, refuseValidAndAll, VALID_OPTION } from "./valid.ts";
import { cliContext } from "../../testing/cli.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

type Environment = Readonly<Record<string, string>>;

function parse(argv: readonly string[], env: Environment = {}, netns: string | undefined = "blue") {
  return parseAttachment(parseOptions(argv, ATTACHMENT_OPTIONS, env), netns, cliContext(env));
}

test("parseAttachment() takes the defaults of cnitool", () => {
  expect(parse([])).toEqual({
    netns: "/run/netns/blue",
    containerId: containerIdOfNetns("/run/netns/blue"),
    ifname: "eth0",
    publish: [],
    ips: [],
  });
  expect(parse([], {}, "")).toEqual({ containerId: "", ifname: "eth0", publish: [], ips: [] });
});

const ENV = { CNI_IFNAME: "net1", CNI_ARGS: "K=V;L=W", CAP_ARGS: '{"x":1}', CNI_CONTAINERID: "c1" };

test("parseAttachment() takes the variables of cnitool", () => {
  expect(parse([], ENV)).toMatchObject({
    ifname: "net1",
    args: [["K", "V"], ["L", "W"]],
    capabilityArgs: { x: 1 },
    containerId: "c1",
  });
});

test("parseAttachment() prefers options over variables", () => {
  expect(parse(["-i", "net2", "--args", "M=X", "--cap-args", "{}", "--container-id", "c2"], ENV)).toMatchObject({
    ifname: "net2",
    args: [["M", "X"]],
    capabilityArgs: {},
    containerId: "c2",
  });
});

test("parseAttachment() reads what is to be published and asked for", () => {
  const ports = ["-p", "80:80", "-p", "127.0.0.1:53:53/udp"];
  const { publish, ips, mac } = parse([
    ...ports,
    ...["--ip", "10.1.0.5", "--ip", "FD00::5/64", "--mac", "0A:58:0a:01:00:02"],
  ]);
  expect(publish.map(({ hostPort }) => hostPort)).toEqual([80, 53]);
  expect(ips).toEqual(["10.1.0.5", "fd00::5/64"]);
  expect(mac).toBe("0a:58:0a:01:00:02");
});

test("parseAttachment() makes the container id that cnitool makes of the same path", () => {
  // Printed by cnitool for `add NET /var/run/netns/blue`.
  expect(parse([], {}, "/var/run/netns/blue").containerId).toBe("cnitool-296747069b8a02dc4e2a");
});

test.each([
  [["--args", "K"], "KEY=VALUE"],
  [["--args", "K=V;"], "KEY=VALUE"],
  [["--args", "K=V=W"], "KEY=VALUE"],
  [["--cap-args", "[]"], "JSON object"],
  [["--cap-args", "{"], "--cap-args"],
  [["--ip", "10.1.0"], "--ip"],
  [["--ip", "10.1.0.5/x"], "--ip"],
  [["--mac", "0a:58"], "--mac"],
  [["-p", "80"], "cannot publish"],
])("parseAttachment() refuses %j", (argv, message) => {
  expect(() => parse(argv)).toThrow(UsageError);
  expect(() => parse(argv)).toThrow(message);
});

const network = (...capabilities: string[]) => {
  const declared = Object.fromEntries(capabilities.map((name) => [name, true]));
  return parseNetworkConfigList(
    JSON.stringify({
      cniVersion: "1.1.0",
      name: "web",
      plugins: [{ type: "a" }, { type: "b", capabilities: declared }],
    }),
  );
};
const argumentsOf = (list: ReturnType<typeof network>, ...argv: string[]) => runtimeArguments(list, parse(argv));

const published = { hostPort: 80, containerPort: 81, protocol: "tcp" };

test("runtimeArguments() are capabilities where a plugin declares them", () => {
  const list = network("portMappings", "ips", "mac");
  expect(argumentsOf(list, "-p", "80:81", "--ip", "10.1.0.5", "--ip", "fd00::5", "--mac", "0a:58:00:00:00:01"))
    .toEqual({
      args: [],
      capabilityArgs: { portMappings: [published], ips: ["10.1.0.5", "fd00::5"], mac: "0a:58:00:00:00:01" },
    });
});

test("runtimeArguments() are CNI_ARGS else, which plugins that do not know them are to ignore", () => {
  expect(argumentsOf(network(), "--ip", "10.1.0.5", "--mac", "0a:58:00:00:00:01", "--args", "K=V")).toEqual({
    args: [["IgnoreUnknown", "1"], ["K", "V"], ["IP", "10.1.0.5"], ["MAC", "0a:58:00:00:00:01"]],
    capabilityArgs: {},
  });
});

test("runtimeArguments() leave CNI_ARGS alone that the caller made", () => {
  expect(argumentsOf(network(), "--args", "K=V").args).toEqual([["K", "V"]]);
  const { args } = argumentsOf(network(), "--args", "IgnoreUnknown=false", "--ip", "10.1.0.5");
  expect(args).toEqual([["IgnoreUnknown", "false"], ["IP", "10.1.0.5"]]);
});

test("runtimeArguments() add to the capability arguments that the caller made", () => {
  const given = JSON.stringify({ portMappings: [{ hostPort: 1 }], x: 1 });
  expect(argumentsOf(network("portMappings"), "--cap-args", given, "-p", "80:81").capabilityArgs).toEqual({
    portMappings: [{ hostPort: 1 }, published],
    x: 1,
  });
});

test("runtimeArguments() that no plugin hears are an error", () => {
  expect(errorOfCall(() => argumentsOf(network("ips"), "-p", "80:81")).message).toContain('capability "portMappings"');
  expect(errorOfCall(() => argumentsOf(network(), "--ip", "10.1.0.5", "--ip", "fd00::5")).code).toBe(7);
});

test("runtimeArgumentsForDel() continue without options that no plugin hears of", () => {
  const request = parse(["-p", "80:81", "--args", "K=V"]);
  expect(runtimeArgumentsForDel(network(), request)).toEqual({ args: [["K", "V"]] });
  expect(runtimeArgumentsForDel(network("portMappings"), request)).toEqual({
    args: [["K", "V"]],
    capabilityArgs: { portMappings: [published] },
  });
});

test("runtimeArguments() of every kind are heard by the default network", () => {
  const { args, capabilityArgs } = argumentsOf(
    parseNetworkConfigList(DEFAULT_NETWORK),
    ...["-p", "80:81", "--ip", "10.88.0.9", "--mac", "0a:58:00:00:00:01"],
  );
  expect(args).toEqual([]);
  expect(Object.keys(capabilityArgs).sort()).toEqual(["ips", "mac", "portMappings"]);
});

const valid = async (...argv: string[]) => {
  const options = parseOptions(argv, [VALID_OPTION, ALL_OPTION, IFNAME_OPTION], {});
  refuseValidAndAll(options);
  return await parseValid(options, { attachments: () => [] }, "web");
};

test("parseValid() reads the attachments that stay", async () => {
  expect(await valid("--valid", "c1/eth1", "--valid", "c2")).toEqual([
    { containerId: "c1", ifname: "eth1" },
    { containerId: "c2", ifname: "eth0" },
  ]);
  expect(await valid("--valid", "c1", "-i", "net1")).toEqual([{ containerId: "c1", ifname: "net1" }]);
  expect(await valid("--all")).toEqual([]);
});

test.each([
  [["--all", "--valid", "c1"], "--all"],
  [["--valid", ""], "needs a value"],
  [["--valid", "/eth0"], 'got "/eth0", whose container id is empty'],
  [["--valid", "c1/"], 'got "c1/", whose interface name is empty'],
  [["--valid", "c1", "--valid", "a/b/c"], 'got "a/b/c", whose interface name "b/c" has a /'],
  [["--valid", "/run/netns/web"], "ID or ID/IFNAME"],
])("parseValid() refuses %j", async (argv, message) => {
  const error = await valid(...argv).then(() => undefined, (thrown) => thrown);
  expect(error).toBeInstanceOf(UsageError);
  expect(error.message).toContain(message);
});
