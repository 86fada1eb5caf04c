/** What we send is what ip(8) sends, but for NLA_F_NESTED and the order of attributes; so values are compared where there are nests. */
import { expect, test } from "bun:test";
import { parseCidr, parseIp, parseMac } from "../address.ts";
import { executeAll } from "../netlink/socket.ts";
import { acknowledgement, recordedMessage, recordingSocket, valueOf } from "../../testing/netlink.ts";
import * as address from "./address.ts";
import { bridge, veth } from "./link_kinds.ts";
import * as link from "./link.ts";
import * as route from "./route.ts";

/** What is sent while `call` runs. */
function sentBy(call: (nl: ReturnType<typeof recordingSocket>) => void): Uint8Array {
  const nl = recordingSocket(acknowledgement(1, 0));
  call(nl);
  return nl.sent[0]!;
}

test("setting a link up and adding addresses sends ip(8)'s bytes", () => {
  expect(sentBy((nl) => link.setUp(nl, 1)).toHex()).toBe(recordedMessage("link_set_up").toHex());
  const add = (text: string, options = {}) =>
    sentBy((nl) => executeAll(nl, [address.addRequest(1, parseCidr(text), options)]));
  expect(sorted(add("10.1.2.3/24"))).toEqual(sorted(recordedMessage("address_add")));
  // ip(8) puts the flag in the header's eight bits; the attribute holds all of them.
  const ours = valueOf(address.addressMessage, add("fd00::3/64", { noDad: true }));
  const theirs = valueOf(address.addressMessage, recordedMessage("address_add_nodad"));
  expect(ours).toEqual({ ...theirs, shortFlags: 0, flags: theirs.shortFlags });
});

test("a new bridge and a new veth have ip(8)'s values", () => {
  const ours = sentBy((nl) =>
    link.add(nl, { name: "br0", mac: parseMac("0a:00:00:00:00:01"), info: bridge({ vlanFiltering: 1 }) })
  );
  const theirs = recordedMessage("link_add_bridge");
  expect(bridge.of(valueOf(link.linkMessage, ours))).toEqual({ vlanFiltering: 1 });
  // A u8 there, and four bytes of padding with it, in both.
  expect(bridge.of(valueOf(link.linkMessage, theirs))).toEqual({ vlanFiltering: 1 });

  const peer = { name: "eth0", mac: parseMac("0a:00:00:00:00:02") };
  const pair = valueOf(
    link.linkMessage,
    sentBy((nl) => link.add(nl, { name: "vethx", mtu: 1400, info: veth({ peer }) })),
  );
  const wanted = valueOf(link.linkMessage, recordedMessage("link_add_veth"));
  expect(veth.of(pair)).toEqual(veth.of(wanted)!);
  expect({ ...pair, info: pair.info?.kind }).toEqual({ ...wanted, info: wanted.info?.kind });
});

test("a new route has ip(8)'s values", () => {
  const spec = { dst: parseCidr("192.0.2.0/24"), gateway: parseIp("10.1.2.1"), oif: 1, priority: 50, mtu: 1400 };
  const ours = valueOf(route.routeMessage, sentBy((nl) => executeAll(nl, [route.appendRequest(spec)])));
  expect(ours).toEqual(valueOf(route.routeMessage, recordedMessage("route_add")));
});

/** The message's header, and its attributes in order of their numbers. */
function sorted(message: Uint8Array): string[] {
  const HEADERS = 16 + 8;
  const view = new DataView(message.buffer, message.byteOffset);
  const found: string[] = [];
  for (let at = HEADERS; at < message.length; at += (view.getUint16(at, true) + 3) & ~3) {
    found.push(message.subarray(at, at + view.getUint16(at, true)).toHex());
  }
  return [message.subarray(0, HEADERS).toHex(), ...found.sort()];
}
