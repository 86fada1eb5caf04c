/** A path that leads to the namespace of another container by the time of the DEL: what the plugins spare, and what they remove. */
import { expect } from "bun:test";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { linkNames, type Namespaces, netnsTest, runInNetns } from "../../../testing/netns.ts";
import bridge from "../../bridge/plugin.ts";
import loopback from "../../loopback/plugin.ts";
import { removeContainerLink } from "./container_link.ts";
import { sandboxTest } from "../../../testing/sandbox.ts";
import { parseResult } from "../../../spec/result.ts";

const [OWN, OTHER] = ["0a:58:00:00:00:01", "0a:58:00:00:00:02"] as const;

/** What the ADD of c1 said. */
const toldBy = (mac: string | undefined, address = "10.1.0.2/24") => ({
  cniVersion: "1.1.0",
  interfaces: [{ name: "veth9", mac: OTHER }, { name: "eth0", ...mac && { mac }, sandbox: "/run/netns/x" }],
  ips: [{ address, interface: 1 }],
});

/** Gives the container a cable of which it has changed the hardware address, or which is another's. */
function addCable({ host, container }: Namespaces, alias?: string): void {
  runInNetns(
    host,
    "sh",
    "-ec",
    `ip link add out0 type veth peer name eth0 address ${OTHER} netns ${container.path}
    ${alias ? `ip link set out0 alias "${alias}"` : ""}`,
  );
  runInNetns(container, "sh", "-ec", "ip link set lo up; ip addr add 10.1.0.3/24 dev eth0");
}

const isLoUp = (netns: Netns): boolean => runInNetns(netns, "ip", "link", "show", "lo").includes("UP");

/** Who says whose the interface is, and whether it is that of c1. */
const CASES = [
  ["that is all other than the result says", undefined, toldBy(OWN), false],
  ["of which the host's end says that it is another's", "cni:test c2 eth0", toldBy(OWN), false],
  ["of which the host's end says whose it is, whatever its address", "cni:test c1 eth0", toldBy(OWN), true],
  ["with the hardware address of the result", undefined, toldBy(OTHER.toUpperCase()), true],
  ["with an address of the result", undefined, toldBy(OWN, "10.1.0.3/16"), true],
  ["of which the result says no hardware address", undefined, toldBy(undefined), true],
  ["of which there is no result", undefined, undefined, true],
] as const;

for (const [what, alias, prevResult, isOwn] of CASES) {
  const verb = isOwn ? "removes" : "spares";
  const config = { ipam: {}, ...prevResult && { prevResult } };

  sandboxTest(`DEL of bridge ${verb} an interface ${what}`, [], (sandbox) => {
    addCable(sandbox, alias);
    sandbox.call(bridge, "DEL", config);
    expect(linkNames(sandbox.container)).toEqual(isOwn ? ["lo"] : ["eth0", "lo"]);
  });

  sandboxTest(`DEL of loopback ${verb} what is beside an interface ${what}`, [], (sandbox) => {
    addCable(sandbox, alias);
    sandbox.call(loopback, "DEL", config);
    expect(isLoUp(sandbox.container)).toBe(!isOwn);
  });
}

netnsTest("an interface without another end says itself whose it is, else the result does", ({ host, container }) => {
  const owner = { network: "test", containerId: "c1", ifname: "eth0" };
  const removed = (alias: string, mac: string) => {
    runInNetns(container, "ip", "link", "add", "eth0", "address", OTHER, "type", "bridge");
    runInNetns(container, "ip", "link", "set", "eth0", "alias", alias);
    const prevResult = parseResult(toldBy(mac), "1.1.0", "prevResult");
    removeContainerLink(container, { host, owner, ifname: "eth0", prevResult }, "bridge");
    const isRemoved = !linkNames(container).includes("eth0");
    if (!isRemoved) runInNetns(container, "ip", "link", "del", "eth0");
    return isRemoved;
  };
  expect(removed("cni:test c1 eth0", OWN)).toBe(true);
  expect(removed("cni:test c2 eth0", OTHER)).toBe(false);
  expect(removed("", OTHER)).toBe(true);
  expect(removed("", OWN)).toBe(false);
});
