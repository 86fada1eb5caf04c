/** Leases for interfaces of ipvlan, which share a hardware address, on a kernel that has such. */
import { expect } from "bun:test";
import { dhcpLanTest, dnsmasqMessages } from "../../testing/dhcp.ts";
import { findShownLink, shownAddresses } from "../../testing/fixture_configs.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";

dhcpLanTest("interfaces of ipvlan get a lease each, by their client ids and broadcast answers", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  await lan.startLeaseServer();
  runShellInNetns(lan.host, "ip link del br0", "ip link set up0 up");
  const config = { ...lan.config, master: "up0" };
  const containers = [lan.container, lan.newContainer()];
  containers.forEach((netns, i) => lan.call("ipvlan", "ADD", config, { containerId: `c${i}`, netns }));
  expect(containers.map((netns) => shownAddresses(findShownLink(netns)))).toEqual([["10.7.0.10"], ["10.7.0.11"]]);
  lan.call("ipvlan", "DEL", config, { containerId: "c0", netns: containers[0]! });
  await until(() => dnsmasqMessages(dnsmasq).includes("DHCPRELEASE 10.7.0.10"));
});
