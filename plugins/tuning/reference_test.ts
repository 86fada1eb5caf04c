/** The same requests to the reference plugin and to this one: what they answer, what the kernel has then, and whether either undoes the other. */
import { expect } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { runInNetns } from "../../testing/netns.ts";
import { newSandbox, type Sandbox, type SandboxCallOptions } from "../../testing/sandbox.ts";
import { callReference, REFERENCE_VERSION, referenceTest } from "../../testing/reference.ts";
import type { CniCommand } from "../../spec/version.ts";
import tuning from "./plugin.ts";

type Json = Readonly<Record<string, unknown>>;
type Side = (sandbox: Sandbox, verb: CniCommand, config: Json, options?: SandboxCallOptions) => unknown;

const peerTest = referenceTest("tuning");
const dataDirOf = ({ directory }: Sandbox) => join(directory, "state");
const theirs: Side = (sandbox, verb, config, options) =>
  callReference(sandbox, "tuning", verb, { dataDir: dataDirOf(sandbox), ...config }, options);
const ours: Side = (sandbox, verb, config, options) => {
  try {
    return sandbox.call(
      tuning,
      verb,
      { cniVersion: REFERENCE_VERSION, dataDir: dataDirOf(sandbox), ...config },
      options,
    );
  } catch {
    return "refused";
  }
};

const LINK = "link add eth0 address 0a:00:00:00:00:01 type veth peer name peer0 address 0a:00:00:00:00:02";
const PARAMETERS = ["net/core/somaxconn", "net/ipv4/conf/eth0/rp_filter", "net/ipv4/tcp_rmem"];

/** A sandbox whose container has a link, with its path known to nobody: it differs from sandbox to sandbox. */
function prepared(): Sandbox {
  const sandbox = newSandbox([]);
  runInNetns(sandbox.container, "ip", ...LINK.split(" "));
  return sandbox;
}

function stateOf(sandbox: Sandbox): unknown {
  const { container } = sandbox;
  const [{ address, mtu, txqlen, promiscuity, flags }] = JSON.parse(
    runInNetns(container, "ip", "-j", "-d", "link", "show", "eth0"),
  );
  const parameters = PARAMETERS.map((each) => runInNetns(container, "cat", `/proc/sys/${each}`));
  return { address, mtu, txqlen, promiscuity, flags, parameters };
}

/** The reference plugin's part of the state files. */
function filesOf(sandbox: Sandbox): Json {
  const directory = dataDirOf(sandbox);
  const names = existsSync(directory) ? readdirSync(directory).sort() : [];
  return Object.fromEntries(names.map((name) => {
    const { version: _, owner: __, place: ___, after: ____, sysctl: _____, ...known } = JSON.parse(
      readFileSync(join(directory, name), "utf8"),
    );
    return [name, known];
  }));
}

const prevResult = {
  cniVersion: REFERENCE_VERSION,
  interfaces: [{ name: "br0", mac: "0a:00:00:00:00:03" }, { name: "eth0", mac: "0a:00:00:00:00:01", sandbox: "/x" }],
  ips: [{ address: "10.0.0.2/24", gateway: "10.0.0.1", interface: 1 }],
  routes: [{ dst: "0.0.0.0/0" }],
};
const MAC = "0a:00:00:00:00:07";
const CASES: Readonly<Record<string, { readonly config: Json; readonly args?: string }>> = {
  "nothing": { config: {} },
  "MAC address": { config: { mac: MAC } },
  "MAC address by CNI_ARGS": { config: { mac: "0a:00:00:00:00:08" }, args: `MAC=${MAC};IgnoreUnknown=1;K8S=x` },
  "MAC address by the runtime": { config: { RuntimeConfig: { mac: MAC } }, args: "MAC=0a:00:00:00:00:08" },
  "MAC address by args": { config: { runtimeConfig: { mac: "0a:00:00:00:00:08" }, args: { cni: { mac: MAC } } } },
  "MTU": { config: { mtu: 1400 } },
  "MTU by args": { config: { mtu: 1400, args: { cni: { mtu: 1300 } } } },
  "promiscuous": { config: { promisc: true } },
  "not promiscuous": { config: { promisc: false } },
  "all multicast": { config: { allmulti: true } },
  "not all multicast": { config: { allmulti: false } },
  "several": { config: { mac: MAC, mtu: 1400, promisc: true, allmulti: true } },
  "parameters": {
    config: {
      sysctl: {
        "net.core.somaxconn": "500",
        "net/ipv4/conf/IFNAME/rp_filter": "2",
        "net.ipv4.tcp_rmem": "4096 5000 6000",
      },
      mtu: 1400,
    },
  },
  "parameters by args": {
    config: {
      sysctl: { "net.core.somaxconn": "500" },
      args: { cni: { sysctl: { "net.core.somaxconn": "600" } } },
      mtu: 1400,
    },
  },
};
for (const [name, { config, args = "" }] of Object.entries(CASES)) {
  peerTest(`tuning does what the reference plugin does, and either takes back what the other did: ${name}`, () => {
    const request = { ...config, prevResult };
    const options = { env: { CNI_ARGS: args } };
    const [mine, reference] = [ours, theirs].map((side) => {
      using sandbox = prepared();
      const before = stateOf(sandbox);
      const answer = side(sandbox, "ADD", request, options);
      const [state, files] = [stateOf(sandbox), filesOf(sandbox)];
      const other = side === ours ? theirs : ours;
      expect(other(sandbox, "DEL", request, options)).toEqual({});
      // Only we put parameters back, and only those of which we wrote down what they were.
      const after = stateOf(sandbox) as Json;
      expect({ ...after, parameters: null }).toEqual({ ...before as Json, parameters: null });
      expect(filesOf(sandbox)).toEqual({});
      return { answer, state, files };
    });
    expect(mine).toEqual(reference!);
    expect(reference!.answer).not.toBe("refused");
  });
}

const REFUSED: readonly { readonly config: Json; readonly args?: string }[] = [
  { config: { mac: "nonsense", prevResult } },
  { config: { mtu: 1_000_000, prevResult } },
  { config: { mtu: "1400", prevResult } },
  { config: { sysctl: { "kernel.hostname": "x" }, prevResult } },
  { config: { sysctl: { "net.nosuch": "x" }, prevResult } },
  { config: { sysctl: { "net.core.somaxconn": 5 }, prevResult } },
  { config: { mtu: 1400 } },
  { config: { prevResult }, args: "K8S_POD_NAME=x" },
];
for (const { config, args = "" } of REFUSED) {
  const name = JSON.stringify([{ ...config, prevResult: config["prevResult"] && "…" }, args]);
  peerTest(`tuning refuses what the reference plugin refuses: ${name}`, () => {
    for (const side of [ours, theirs]) {
      using sandbox = prepared();
      expect(side(sandbox, "ADD", config, { env: { CNI_ARGS: args } })).toBe("refused");
    }
  });
}
