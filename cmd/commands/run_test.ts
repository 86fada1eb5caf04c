import { expect, test } from "bun:test";
import { CniError } from "../../spec/error.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { runtimeArguments } from "./run.ts";
import { parseRun } from "./run_arguments.ts";
import { DEFAULT_NETWORK } from "../../runtime/default_network.ts";

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
const wished = (list: ReturnType<typeof network>, ...argv: string[]) =>
  runtimeArguments(list, parseRun(["add", "web", "blue", ...argv], {}, () => "/")!);

function failureOf(call: () => unknown): CniError {
  try {
    call();
  } catch (error) {
    if (error instanceof CniError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

const published = { hostPort: 80, containerPort: 81, protocol: "tcp" };

test("wishes() are capabilities where a plugin declares them", () => {
  const list = network("portMappings", "ips", "mac");
  expect(wished(list, "-p", "80:81", "--ip", "10.1.0.5", "--ip", "fd00::5", "--mac", "0a:58:00:00:00:01")).toEqual({
    args: [],
    capabilityArgs: { portMappings: [published], ips: ["10.1.0.5", "fd00::5"], mac: "0a:58:00:00:00:01" },
  });
});

test("wishes() are CNI_ARGS else, which plugins that do not know them are to ignore", () => {
  expect(wished(network(), "--ip", "10.1.0.5", "--mac", "0a:58:00:00:00:01", "--args", "K=V")).toEqual({
    args: [["IgnoreUnknown", "1"], ["K", "V"], ["IP", "10.1.0.5"], ["MAC", "0a:58:00:00:00:01"]],
    capabilityArgs: {},
  });
});

test("wishes() leave CNI_ARGS alone that the caller made", () => {
  expect(wished(network(), "--args", "K=V").args).toEqual([["K", "V"]]);
  const args = wished(network(), "--args", "IgnoreUnknown=false", "--ip", "10.1.0.5").args;
  expect(args).toEqual([["IgnoreUnknown", "false"], ["IP", "10.1.0.5"]]);
});

test("wishes() add to the capability arguments that the caller made", () => {
  const given = JSON.stringify({ portMappings: [{ hostPort: 1 }], x: 1 });
  expect(wished(network("portMappings"), "--cap-args", given, "-p", "80:81").capabilityArgs).toEqual({
    portMappings: [{ hostPort: 1 }, published],
    x: 1,
  });
});

test("wishes() that no plugin hears are an error", () => {
  expect(failureOf(() => wished(network("ips"), "-p", "80:81")).message).toContain('capability "portMappings"');
  expect(failureOf(() => wished(network(), "--ip", "10.1.0.5", "--ip", "fd00::5")).code).toBe(7);
});

test("wishes() of every kind are heard by the default network", () => {
  const { args, capabilityArgs } = wished(
    parseNetworkConfigList(DEFAULT_NETWORK),
    "-p",
    "80:81",
    "--ip",
    "10.88.0.9",
    "--mac",
    "0a:58:00:00:00:01",
  );
  expect(args).toEqual([]);
  expect(Object.keys(capabilityArgs).sort()).toEqual(["ips", "mac", "portMappings"]);
});
