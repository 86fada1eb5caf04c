import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Cidr, parseCidr } from "../ffi/address.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { netnsTest, runShellInNetns } from "../testing/netns.ts";
import { chooseSubnet, nameServers, subnetsOfConfiguration, subnetsOfHost } from "./subnets.ts";

function temporaryFile(text: string): Disposable & { readonly path: string } {
  const directory = mkdtempSync(join(tmpdir(), "cni-resolv-"));
  const path = join(directory, "resolv.conf");
  writeFileSync(path, text);
  return { path, [Symbol.dispose]: () => rmSync(directory, { recursive: true }) };
}

const useOf = (text: string) => ({ subnet: parseCidr(text), user: "test" });

netnsTest("a subnet is free if the host has neither route nor address there, in whatever table", ({ host }) => {
  const choose = () => chooseSubnet(4, subnetsOfHost(host));
  expect(choose()).toBe("10.64.0.0/24" as Cidr);
  runShellInNetns(
    host,
    "ip link set lo up; ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up",
    "ip address add 10.64.2.1/24 dev up0",
    "ip route add 10.64.0.7/32 dev up0",
    "ip route add blackhole 10.64.1.0/24",
    "ip route add 10.64.3.0/24 dev up0 table 100",
    "ip route add default dev up0",
    "ip route add 0.0.0.0/1 dev up0; ip route add 128.0.0.0/1 dev up0",
  );
  expect(choose()).toBe("10.64.4.0/24" as Cidr);
  runShellInNetns(host, "ip route add 10.0.0.0/8 dev up0");
  expect(choose()).toBe("172.20.0.0/24" as Cidr);
  expect(subnetsOfHost(host)).toContainEqual({
    subnet: "10.64.3.0/24" as Cidr,
    user: 'a route of the host on "up0"',
  });
});

test("where all is in use, the error says what to do", () => {
  const uses = ["10.0.0.0/8", "172.16.0.0/12"].map(useOf);
  expect(chooseSubnet(4, uses)).toBe("192.168.0.0/24" as Cidr);
  expect(() => chooseSubnet(4, [...uses, useOf("192.168.0.0/16")])).toThrow("Cannot choose a subnet");
});

test("an IPv6 subnet is a unique local one, another each time", () => {
  const [a, b] = [chooseSubnet(6, []), chooseSubnet(6, [])];
  expect(a).toMatch(/^fd[0-9a-f]{2}:[0-9a-f]{1,4}:[0-9a-f]{1,4}::\/64$/);
  expect(b).not.toBe(a);
});

test("name servers are not in the subnet of a network", () => {
  using file = temporaryFile(
    "# nameserver 10.64.9.1\nnameserver 10.64.0.53\nnameserver fe80::1%eth0\noptions ndots:1\n",
  );
  expect(nameServers(file.path)).toEqual([{ subnet: "10.64.0.53/32" as Cidr, user: "name server 10.64.0.53" }]);
  expect(nameServers("/nonexistent")).toEqual([]);
  expect(chooseSubnet(4, nameServers(file.path))).toBe("10.64.1.0/24" as Cidr);
});

test("subnets of a configuration are those of host-local and static, in any form", () => {
  const list = parseNetworkConfigList(JSON.stringify({
    ...{ cniVersion: "1.0.0", name: "web" },
    plugins: [
      {
        type: "bridge",
        ipam: { type: "host-local", subnet: "10.1.0.0/24", ranges: [[{ subnet: "fd01::/64" }, 7], "x"] },
      },
      { type: "vlan", IPAM: { type: "static", addresses: [{ address: "10.2.0.9/16" }, { address: "wrong" }] } },
      { type: "ptp", ipam: { type: "dhcp" } },
    ],
  }));
  expect(subnetsOfConfiguration(list)).toEqual(["10.1.0.0/24", "fd01::/64", "10.2.0.0/16"] as Cidr[]);
});
