/** Where containers can ask for names. */
import { expect, test } from "bun:test";
import { parseCidr } from "../../ffi/address.ts";
import { newCountingHost } from "../../testing/counting_host.ts";
import { runShellInNetns, WITHOUT_DAD } from "../../testing/netns.ts";
import { findServers } from "./servers.ts";

const ADDRESSES = ["10.88.0.2/16", "fd88::2/64"].map(parseCidr);

/** The servers on a host with so many other addresses, and what it cost to find them. */
function serversBeside(others: number, interfaces: readonly string[]) {
  using resources = new DisposableStack();
  const { host, context, measure } = newCountingHost(resources);
  runShellInNetns(
    host,
    WITHOUT_DAD,
    ...[1, 2].flatMap((i) => [
      `ip link add br${i} type bridge; ip link set br${i} addrgenmode none up`,
      `ip addr add 10.88.0.${i}/16 dev br${i}; ip addr add fd88::${i}/64 dev br${i}`,
    ]),
    `for i in $(seq ${others}); do echo "addr add 10.9.0.$i/32 dev lo"; done | ip -batch -`,
  );
  const result = { cniVersion: "1.1.0", interfaces: interfaces.map((name) => ({ name })) };
  let servers: readonly object[] = [];
  const counts = measure(() => void (servers = findServers(context.host, "web", result, ADDRESSES)));
  return { servers, counts };
}

test("addresses of other links are not read", () => {
  const few = serversBeside(2, ["br1"]);
  expect(few.servers).toEqual(["10.88.0.1", "fd88::1"].map((address) => ({ address, device: "br1" })));
  expect(serversBeside(200, ["br1"])).toEqual(few);
});

test("servers are in the order in which the kernel lists all addresses", () => {
  const all = serversBeside(2, []).servers;
  expect(all).toMatchObject(["10.88.0.1", "10.88.0.2", "fd88::1", "fd88::2"].map((address) => ({ address })));
  expect(serversBeside(2, ["br2", "br1"]).servers).toEqual(all);
});
