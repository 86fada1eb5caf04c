import { expect, test } from "bun:test";
import fc from "fast-check";
import { parseIp } from "../address.ts";
import { ETH_P_ARP, ETH_P_IP, ETH_P_IPV6 } from "../sys/uapi.ts";
import { readPacketEnds } from "./ip_header.ts";

const bytes = (...hex: string[]) => Uint8Array.fromHex(hex.join("").replaceAll(" ", ""));
const IPV4 = (length: string, fragment: string, protocol: string) =>
  `4${length} 00 0054 0001 ${fragment} 40 ${protocol} 0000 0a010002 c0000207`;
const IPV6 = (next: string) => `60000000 0040 ${next} 40 ${"fd00".padEnd(31, "0")}2 ${"2001".padEnd(31, "0")}7`;
const PORTS = "8000 0035 00000000";
const ENDS4 = { source: parseIp("10.1.0.2"), destination: parseIp("192.0.2.7") };
const ENDS6 = { source: parseIp("fd00::2"), destination: parseIp("2001::7") };

test.each(
  [
    ["UDP", ETH_P_IP, bytes(IPV4("5", "0000", "11"), PORTS), { ...ENDS4, protocol: 17, port: 53 }],
    ["options", ETH_P_IP, bytes(IPV4("6", "4000", "06"), "01010101", PORTS), { ...ENDS4, protocol: 6, port: 53 }],
    ["a first fragment", ETH_P_IP, bytes(IPV4("5", "2000", "11"), PORTS), { ...ENDS4, protocol: 17, port: 53 }],
    ["a later fragment", ETH_P_IP, bytes(IPV4("5", "2001", "11"), PORTS), { ...ENDS4, protocol: 17 }],
    ["a header without more", ETH_P_IP, bytes(IPV4("5", "0000", "11")), { ...ENDS4, protocol: 17 }],
    ["ICMP", ETH_P_IP, bytes(IPV4("5", "0000", "01"), PORTS), { ...ENDS4, protocol: 1 }],
    ["SCTP over IPv6", ETH_P_IPV6, bytes(IPV6("84"), PORTS), { ...ENDS6, protocol: 132, port: 53 }],
    [
      "extensions",
      ETH_P_IPV6,
      bytes(IPV6("00"), "3c00010400000000", "1101".padEnd(32, "0"), PORTS),
      { ...ENDS6, protocol: 17, port: 53 },
    ],
    ["a first fragment of IPv6", ETH_P_IPV6, bytes(IPV6("2c"), "1100000100000001", PORTS), {
      ...ENDS6,
      protocol: 17,
      port: 53,
    }],
    ["a later fragment of IPv6", ETH_P_IPV6, bytes(IPV6("2c"), "1100000900000001", PORTS), { ...ENDS6, protocol: 17 }],
    ["ARP", ETH_P_ARP, bytes("0001080006040001".padEnd(56, "0")), undefined],
    ["a piece", ETH_P_IP, bytes("4500"), undefined],
  ] as const,
)("%s", (_, etherType, packet, ends) => {
  expect(readPacketEnds(etherType, packet)).toEqual(ends);
});

test("any bytes are read", () => {
  fc.assert(
    fc.property(fc.constantFrom(ETH_P_IP, ETH_P_IPV6), fc.uint8Array({ maxLength: 128 }), (etherType, packet) => {
      readPacketEnds(etherType, packet);
    }),
  );
});
