import { expect } from "bun:test";
import { parseCidr } from "../../../ffi/address.ts";
import { type Netlink, NETLINK_NETFILTER, openNetlink } from "../../../ffi/netlink/socket.ts";
import { lossySocket } from "../../../testing/netlink.ts";
import { NFNL_MSG_BATCH_BEGIN } from "../../../ffi/nft/uapi.ts";
import { netnsTest, runInNetns } from "../../../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, requestUdp, serveTcp, serveUdp } from "../../../testing/traffic.ts";
import { addMasquerade, checkMasquerade, gcMasquerade, removeMasquerade } from "./masquerade.ts";
import type { Owner } from "../model/owner.ts";
import { bridgeNetworkTest } from "../../../testing/bridge_network.ts";

const ownerOf = (containerId: string, network = "web"): Owner => ({ network, containerId, ifname: "eth0" });
const A = ownerOf("a");
const B = ownerOf("b");
const v4 = parseCidr("10.88.0.2/16");
const v6 = parseCidr("fd88::2/64");

/** The elements and the names of chains that are there, in the words of nft(8). */
function state(listing: string): { elements: string[]; chains: string[] } {
  return {
    elements: [...listing.matchAll(/elements = \{ (.*) \}/g)].flatMap(([, all]) => all!.split(", "))
      .filter((element) => !element.includes("#masquerade")).sort(),
    chains: [...listing.matchAll(/chain (masquerade-\S+)/g)].map(([, name]) => name!).sort(),
  };
}

bridgeNetworkTest("addMasquerade() lets containers reach the outside under the host's address", async (network) => {
  const { host, outside } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _tcp = serveTcp(outside, "outside", 80);
  using _udp = await serveUdp(outside, "outside", 53);
  using _sibling = serveTcp(c2.netns, "sibling", 80);
  expect(await requestTcp(c1.netns, "192.0.2.2", 80, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
  addMasquerade(host.nft, A, c1.addresses);
  for (const ask of [() => requestTcp(c1.netns, "192.0.2.2", 80), () => requestUdp(c1.netns, "192.0.2.2", 53)]) {
    expect(await ask()).toBe("outside 192.0.2.1");
  }
  expect(await requestTcp(c1.netns, "2001:db8::2", 80)).toBe("outside 2001:db8::1");
  expect(await requestUdp(c1.netns, "2001:db8::2", 53)).toBe("outside 2001:db8::1");
  expect(await requestTcp(c1.netns, c2.v4, 80)).toBe("sibling 10.88.0.2");
  expect(await requestTcp(c2.netns, "192.0.2.2", 80, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
  removeMasquerade(host.nft, A, c1.addresses);
  expect(await requestTcp(c1.netns, "192.0.2.2", 80, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
});

netnsTest("removeMasquerade() with a result that names no address removes all that is the owner's", ({ host }) => {
  addMasquerade(host.nft, A, [v4, v6]);
  removeMasquerade(host.nft, A, []);
  expect(state(runInNetns(host, "nft", "list", "ruleset"))).toEqual({ elements: [], chains: [] });
});

netnsTest("masquerading is added and removed whichever answer of the kernel is lost", ({ host }) => {
  const look = () => state(runInNetns(host, "nft", "list", "ruleset"));
  addMasquerade(host.nft, A, [v4, v6]);
  const added = look();
  for (let number = 0; number < 12; number++) {
    removeMasquerade(lossySocket(host.nft, number), A, [v4, v6]);
    expect(look()).toEqual({ elements: [], chains: [] });
    addMasquerade(lossySocket(host.nft, number), A, [v4, v6]);
    expect(look()).toEqual(added);
  }
});

netnsTest("masquerading is added once, found, and removed with its chains", ({ host }) => {
  const nl = host.nft;
  const list = () => runInNetns(host, "nft", "list", "ruleset");
  removeMasquerade(nl, A);
  gcMasquerade(nl, "web", [], () => {});
  expect(list()).toBe("");
  expect(() => checkMasquerade(nl, A, [v4])).toThrow(/masquerading of 10\.88\.0\.2 is missing/);
  addMasquerade(nl, A, [v4, v6]);
  const once = list();
  addMasquerade(nl, A, [v4, v6]);
  expect(list()).toBe(once);
  expect(state(once)).toEqual({
    elements: [
      '10.88.0.2 comment "web a eth0" : jump masquerade-10.88.0.0/16',
      'fd88::2 comment "web a eth0" : jump masquerade-fd88--/64',
    ],
    chains: ["masquerade-10.88.0.0/16", "masquerade-fd88--/64"],
  });
  addMasquerade(nl, B, [parseCidr("10.88.0.3/16")]);
  checkMasquerade(nl, A, [v4, v6]);
  checkMasquerade(nl, B, [parseCidr("10.88.0.3/16")]);
  expect(() => checkMasquerade(nl, B, [v4])).toThrow(/belongs to container "a" \(network "web", interface "eth0"\)/);
  expect(() => checkMasquerade(nl, A, [parseCidr("10.88.0.2/24")])).toThrow(/has another target/);
  removeMasquerade(nl, A, [v4, v6]);
  expect(state(list())).toEqual({
    elements: ['10.88.0.3 comment "web b eth0" : jump masquerade-10.88.0.0/16'],
    chains: ["masquerade-10.88.0.0/16"],
  });
  removeMasquerade(nl, B);
  removeMasquerade(nl, B);
  expect(state(list())).toEqual({ elements: [], chains: [] });
});

netnsTest("an address that comes twice is masqueraded once", ({ host }) => {
  const nl = host.nft;
  const twice = [v4, v6, v4, parseCidr("10.88.0.2/24")];
  addMasquerade(nl, A, twice);
  addMasquerade(nl, A, twice);
  expect(state(runInNetns(host, "nft", "list", "ruleset"))).toEqual({
    elements: [
      '10.88.0.2 comment "web a eth0" : jump masquerade-10.88.0.0/16',
      'fd88::2 comment "web a eth0" : jump masquerade-fd88--/64',
    ],
    chains: ["masquerade-10.88.0.0/16", "masquerade-fd88--/64"],
  });
  checkMasquerade(nl, A, twice);
  removeMasquerade(nl, A, twice);
  expect(state(runInNetns(host, "nft", "list", "ruleset"))).toEqual({ elements: [], chains: [] });
});

netnsTest("a late DEL takes nothing from the container that has the address now", ({ host }) => {
  const nl = host.nft;
  for (let i = 0; i < 50; i++) {
    const [older, newer] = [ownerOf(`c${i}`), ownerOf(`c${i + 1}`)];
    addMasquerade(nl, older, [v4]);
    addMasquerade(nl, newer, [v4]);
    i % 2 ? removeMasquerade(nl, older, [v4]) : removeMasquerade(nl, older);
    checkMasquerade(nl, newer, [v4]);
  }
});

netnsTest("an address that moves to another subnet leaves no chain behind", ({ host }) => {
  addMasquerade(host.nft, A, [v4]);
  addMasquerade(host.nft, B, [parseCidr("10.88.0.2/24")]);
  expect(state(runInNetns(host, "nft", "list", "ruleset"))).toEqual({
    elements: ['10.88.0.2 comment "web b eth0" : jump masquerade-10.88.0.0/24'],
    chains: ["masquerade-10.88.0.0/24"],
  });
});

netnsTest("gcMasquerade() removes what belongs to dead attachments of the network", ({ host }) => {
  const nl = host.nft;
  addMasquerade(nl, A, [v4]);
  addMasquerade(nl, B, [parseCidr("10.88.0.3/16")]);
  addMasquerade(nl, { ...A, ifname: "net1" }, [parseCidr("10.88.0.4/16")]);
  addMasquerade(nl, ownerOf("a", "other"), [parseCidr("10.88.0.5/16")]);
  const log: string[] = [];
  gcMasquerade(nl, "web", [{ containerId: "a", ifname: "eth0" }], (message) => void log.push(message));
  expect(log.sort()).toEqual([
    'Removing masquerading of container "a" (network "web", interface "net1")',
    'Removing masquerading of container "b" (network "web", interface "eth0")',
  ]);
  expect(state(runInNetns(host, "nft", "list", "ruleset")).elements).toEqual([
    '10.88.0.2 comment "web a eth0" : jump masquerade-10.88.0.0/16',
    '10.88.0.5 comment "other a eth0" : jump masquerade-10.88.0.0/16',
  ]);
});

netnsTest(
  "the rules stay the same and the table is re-read by nft(8), whatever the number of containers",
  ({ host, container }) => {
    const nl = host.nft;
    const addresses = Array.from({ length: 500 }, (_, i) => parseCidr(`10.88.${i >> 8}.${i & 255}/16`));
    const rules = () => runInNetns(host, "nft", "list", "ruleset").replace(/elements = \{[^}]*\}/g, "");
    addMasquerade(nl, A, addresses.slice(0, 1));
    const one = rules().replaceAll(/\n\t\t\n/g, "\n");
    addresses.forEach((address, i) => addMasquerade(nl, ownerOf(`c${i}`), [address]));
    expect(rules().replaceAll(/\n\t\t\n/g, "\n")).toBe(one);
    const listing = runInNetns(host, "nft", "list", "ruleset");
    container.run(() => Bun.spawnSync(["nft", "-f", "-"], { stdin: Buffer.from(listing) }));
    expect(runInNetns(container, "nft", "list", "ruleset")).toBe(listing);
  },
);

netnsTest("two that set up at once, each from the beginning, both succeed", ({ host }) => {
  using first = rival(
    host.nft,
    () => addMasquerade(host.run<Netlink>(() => openNetlink(NETLINK_NETFILTER)), B, [parseCidr("10.88.0.3/16")]),
  );
  addMasquerade(first, A, [v4]);
  checkMasquerade(host.nft, A, [v4]);
  checkMasquerade(host.nft, B, [parseCidr("10.88.0.3/16")]);
  expect(first.interrupted).toBeGreaterThan(0);
});

netnsTest("a removal that others overtake is decided anew", ({ host }) => {
  addMasquerade(host.nft, A, [v4]);
  using overtaken = rival(
    host.nft,
    () => addMasquerade(host.run<Netlink>(() => openNetlink(NETLINK_NETFILTER)), B, [v4]),
  );
  removeMasquerade(overtaken, A, [v4]);
  expect(overtaken.interrupted).toBeGreaterThan(0);
  checkMasquerade(host.nft, B, [v4]);
});

/** A socket between whose last question and first change somebody else acts. */
function rival(nl: Netlink, act: () => void): Netlink & { interrupted: number } {
  const self = {
    interrupted: 0,
    sequence: 1,
    send(request: Uint8Array) {
      if (
        new DataView(request.buffer, request.byteOffset).getUint16(4, true) === NFNL_MSG_BATCH_BEGIN &&
        self.interrupted++ === 0
      ) act();
      nl.send(request);
    },
    receive: (wait: boolean) => nl.receive(wait),
    [Symbol.dispose]: () => {},
  };
  return self;
}
