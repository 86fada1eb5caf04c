/** Whose a cable is, as far as DEL and GC can know it: what others have is never theirs. */
import { expect, spyOn } from "bun:test";
import { parseCidr } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { ipShow, linkNames, runInNetns } from "../../../testing/netns.ts";
import bridge from "../../bridge/plugin.ts";
import ptp from "../../ptp/plugin.ts";
import type { Result } from "../../../spec/result.ts";
import { handle } from "../protocol/handle.ts";
import { parseCall } from "../protocol/serve.ts";
import { newHostContext, newRequest } from "../../../testing/plugin_call.ts";
import { type Sandbox, sandboxTest, withPrevResult } from "../../../testing/sandbox.ts";
import { newFixedIpam } from "../../../testing/fixed_ipam.ts";

const { fixed } = newFixedIpam();
const ipam = { type: "fixed", result: { ips: [{ address: parseCidr("10.1.2.2/24"), gateway: "10.1.2.1" }] } };
const cableTest = (name: string, body: (sandbox: Sandbox) => void) => sandboxTest(name, [fixed], body);
const put = (netns: Netns, ...lines: string[]) => runInNetns(netns, "sh", "-e", "-c", lines.join("\n"));

/** The gateway of a VLAN, made by hand since not every kernel has VLANs for bridges, and the result of an ADD that told of it. */
function addVlanGateway(host: Netns, result: Result): Result {
  put(host, "ip link add gwport type veth peer name cni0.100", "ip link set gwport master cni0");
  const mac = ipShow(host, "link", "show", "cni0.100")[0].address;
  return { ...result, interfaces: [...result.interfaces!, { name: "cni0.100", mac }] };
}

cableTest(
  "DEL leaves the gateway of the VLAN that the configuration no longer speaks of",
  ({ call, host, container }) => {
    const result = addVlanGateway(host, call(bridge, "ADD", { ipam }));
    runInNetns(container, "ip", "link", "del", "eth0");
    const links = ["cni0", "cni0.100", "gwport", "lo"];
    for (const config of [{ vlan: 200 }, { bridge: "br1" }, { vlan: "unusable" }]) {
      for (const netns of [container, null]) {
        call(bridge, "DEL", withPrevResult({ ...config, isGateway: true, ipam }, result), { netns });
        expect(linkNames(host)).toEqual(links);
      }
    }
  },
);

cableTest("both ends have one queue, with any number of processors", ({ call, host, container }) => {
  call(ptp, "ADD", { ipam });
  const veths = [
    ...ipShow(host, "-d", "link", "show", "type", "veth"),
    ...ipShow(container, "-d", "link", "show", "eth0"),
  ];
  const queues = veths.map(({ num_tx_queues, num_rx_queues }) => [num_tx_queues, num_rx_queues]);
  expect(queues).toEqual([[1, 1], [1, 1]]);
});

cableTest("a host veth gets another name where chance gives one that is taken", ({ call, host }) => {
  put(host, "ip link add veth00000000 type bridge");
  const real = crypto.getRandomValues.bind(crypto) as (bytes: Uint8Array) => Uint8Array;
  let names = 0;
  // Random bytes for names are four at a time.
  const chance = (bytes: Uint8Array) => bytes.length === 4 && names++ < 3 ? bytes.fill(0) : real(bytes);
  using _ = spyOn(crypto, "getRandomValues").mockImplementation(chance as typeof crypto.getRandomValues);
  call(ptp, "ADD", { ipam });
  expect(names).toBe(4);
  expect(linkNames(host)).toEqual(["lo", "veth00000000", expect.stringMatching(/^veth[0-9a-f]{8}$/)]);
});

cableTest("DEL of many leaves the gateway of the VLAN too, and finds cables that are at no bridge", (sandbox) => {
  const { call, host, newContainer } = sandbox;
  const containers = ["c1", "c2"].map((containerId) => {
    const netns = newContainer();
    return { containerId, netns, result: call(bridge, "ADD", {}, { containerId, netns }) };
  });
  const told = addVlanGateway(host, { interfaces: [{ name: "cni0" }] });
  const [renamed, ended] = containers.map(({ result }) => result.interfaces![1]!.name);
  put(host, `ip link set ${renamed} down nomaster name other0`, `ip link del ${ended}`);
  const log: string[] = [];
  const openNetns = () => {
    throw new Error("not looked for there");
  };
  const context = newHostContext({ host, openNetns, findPlugin: () => fixed, log });
  const document = withPrevResult(
    { cniVersion: "1.1.0", name: "test", type: "bridge", vlan: 200, isGateway: true },
    told,
  );
  const requests = containers.map(({ containerId }) =>
    parseCall(bridge, newRequest("bridge", "DEL", document, { containerId }), context)
  );
  expect(handle(bridge, { command: "DEL_BATCH", requests }, context)).toEqual({ remaining: [] });
  expect(log).toEqual([]);
  expect(linkNames(host)).toEqual(["cni0", "cni0.100", "gwport", "lo"]);
});

cableTest("GC removes no link of somebody who gave it an alias of three words", ({ call, host, container }) => {
  put(
    host,
    "ip link add cni0 type bridge",
    "ip link add vm0 type veth peer name vm1",
    "ip link set vm0 master cni0 alias 'test server uplink'",
    `ip link add vm2 type veth peer name vm3 netns ${container.path}`,
    "ip link set vm2 master cni0 alias 'test c1 eth0'",
  );
  for (const plugin of [bridge, ptp]) call(plugin, "GC", { ipam, "cni.dev/valid-attachments": [] });
  expect(linkNames(host)).toEqual(["cni0", "lo", "vm0", "vm1", "vm2"]);
});

cableTest(
  "GC removes cables that are at no bridge any more, or at another",
  ({ call, host, container, newContainer }) => {
    const second = newContainer();
    const attach = (containerId: string, netns: Netns) =>
      call(bridge, "ADD", {}, { containerId, netns }).interfaces![1]!.name;
    attach("c1", container);
    const other = attach("c2", second);
    put(host, "ip link del cni0", "ip link add br1 type bridge", `ip link set ${other} master br1`);
    call(bridge, "GC", { ipam, "cni.dev/valid-attachments": [{ containerID: "c2", ifname: "eth0" }] });
    expect([linkNames(host), linkNames(container)]).toEqual([["br1", "lo", other].sort(), ["lo"]]);
    call(bridge, "GC", { bridge: "cni1", ipam, "cni.dev/valid-attachments": [] });
    expect([linkNames(host), linkNames(second)]).toEqual([["br1", "lo"], ["lo"]]);
  },
);

cableTest("the longest names that an owner may have fit the alias", ({ call, host }) => {
  const name = "n".repeat(250 - " c1 eth0".length);
  const result = call(bridge, "ADD", { name, ipam });
  expect(ipShow(host, "link", "show", result.interfaces![1]!.name)[0].ifalias).toBe(`cni:${name} c1 eth0`);
  call(bridge, "GC", { name, ipam, "cni.dev/valid-attachments": [] });
  expect(linkNames(host)).toEqual(["cni0", "lo"]);
});
