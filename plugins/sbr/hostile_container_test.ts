/** A container may add what routes and rules it likes: DEL does not fail for them, and says what it could not do. */
import { expect, test } from "bun:test";
import { type Netns, openNetns } from "../../ffi/netns/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { RTM_DELRULE, RTM_GETRULE, RTM_NEWROUTE } from "../../ffi/route/uapi.ts";
import { watchedNetns } from "../../testing/netlink.ts";
import { newHostContext, newRequest, respond } from "../../testing/plugin_call.ts";
import { runShellInNetns } from "../../testing/netns.ts";
import { newSandbox } from "../../testing/sandbox.ts";
import { addInterfaces, ipRules } from "../../testing/sbr.ts";
import sbr from "./plugin.ts";

function prevResultOf(container: Netns): object {
  const ips = [
    { address: "192.0.2.9/24", gateway: "192.0.2.1", interface: 0 },
    { address: "fd00:1::9/64", gateway: "fd00:1::1", interface: 0 },
  ];
  return { cniVersion: "1.1.0", interfaces: [{ name: "net1", sandbox: container.path }], ips };
}

/** What DEL says, by what the container does after ADD. */
const CHANGES: readonly (readonly [change: string, said: string])[] = [
  ["ip route add 198.51.100.0/24 via 192.0.2.77 table 100", ""],
  ["ip route add 198.51.100.0/24 via 10.99.1.1 dev net1 onlink table 100", ""],
  [
    `ip addr add 10.7.7.7/32 dev net1
    ip route add 198.51.100.0/24 dev net1 src 10.7.7.7 table 100
    ip route del local 10.7.7.7 table local`,
    "Cannot add route to 198.51.100.0/24 in table 254: Invalid argument",
  ],
  [
    `ip route add 10.55.0.0/24 dev net1 scope link
    ip route add 198.51.100.0/24 via 10.55.0.1 table 100
    ip route del 10.55.0.0/24`,
    "Cannot add route to 198.51.100.0/24 via 10.55.0.1 in table 254: Network is unreachable",
  ],
  [
    "ip route add 198.51.100.0/24 via inet6 fd00:1::5 dev net1 table 100",
    "Cannot add route to 198.51.100.0/24 in table 254: No route to host",
  ],
  ["ip route add 198.51.100.0/24 encap ip id 5 dst 10.0.0.5 dev net1 table 100", ""],
  ["ip -6 route add 2001:db8::/48 from fd00:1::9 dev net1 table 101", ""],
  ["ip -6 route add 2001:db8::/48 via fd00:5::5 dev net1 onlink table 101", ""],
  ["ip route add local 198.51.100.0/24 dev net1 table 100", ""],
  ["ip route add multicast 224.1.0.0/16 dev net1 table 100", ""],
  ["ip route add unreachable 198.51.100.0/24 table 100", ""],
  ["ip rule add from 192.0.2.9 lookup 100 pref 7 suppress_prefixlength 0", ""],
  ["ip rule add from 192.0.2.9 lookup 100 pref 7 realms 5", ""],
  ["ip rule del from 192.0.2.9", ""],
  ["ip link set net1 down; ip route flush table 100", ""],
  ["ip addr flush dev net1", ""],
  ["ip link del net1", ""],
];

test.each(CHANGES)("%s", (change, said) => {
  using sandbox = newSandbox([]);
  const { call, container, log } = sandbox;
  addInterfaces(container);
  runShellInNetns(container, "ip addr add 192.0.2.9/24 dev net1; ip addr add fd00:1::9/64 dev net1 nodad");
  const prevResult = prevResultOf(container);
  call(sbr, "ADD", { prevResult }, { ifname: "net1" });
  runShellInNetns(container, change);
  call(sbr, "DEL", { prevResult }, { ifname: "net1" });
  expect(log.join("\n")).toContain(said);
  if (said === "") expect(log).toEqual([]);
  expect(ipRules(container)).toEqual([]);
});

const [EPERM, ENOMEM, EINVAL, ERESTART] = [1, 12, 22, 85];

test.each([
  [RTM_DELRULE, EPERM, true],
  [RTM_DELRULE, ENOMEM, true],
  [RTM_DELRULE, EINVAL, true],
  [RTM_GETRULE, ENOMEM, true],
  [RTM_GETRULE, ERESTART, false],
  [RTM_NEWROUTE, EPERM, true],
  [RTM_NEWROUTE, ENOMEM, true],
  [RTM_NEWROUTE, EINVAL, false],
])("DEL whose request %d is refused with error %d fails: %p", (type, errno, fails) => {
  using sandbox = newSandbox([]);
  const { call, container, host } = sandbox;
  addInterfaces(container);
  runShellInNetns(container, "ip addr add 192.0.2.9/24 dev net1; ip addr add fd00:1::9/64 dev net1 nodad");
  const prevResult = prevResultOf(container);
  call(sbr, "ADD", { prevResult }, { ifname: "net1" });
  runShellInNetns(container, "ip route add 198.51.100.0/24 via 192.0.2.77 table 100");
  const onSend = (request: Uint8Array) => {
    if (new DataView(request.buffer, request.byteOffset).getUint16(4, true) !== type) return;
    throw new NetlinkError({ request: `${type}`, errno });
  };
  const log: string[] = [];
  const open = (path: string) => watchedNetns(openNetns(path), { onSend });
  const context = newHostContext({ host, openNetns: open, findPlugin: () => undefined, log });
  const request = newRequest("sbr", "DEL", { name: "test", prevResult }, { ifname: "net1", netns: container });
  expect(respond(sbr, request, context).exitCode !== 0).toBe(fails);
  expect(log.length > 0).toBe(!fails);
  expect(ipRules(container).length > 0).toBe(type !== RTM_NEWROUTE);
});
