/** Questions that the server passes on, to a dnsmasq of another machine. */
import { expect } from "bun:test";
import { writeFileSync } from "node:fs";
import type { BridgeContainer, BridgeNetwork } from "../../../testing/bridge_network.ts";
import { startDnsmasq } from "../../../testing/dnsmasq.ts";
import {
  dig,
  digValues,
  nameServerTest,
  type NameSite,
  newNameSite,
  startNameServer,
} from "../../../testing/dnsname.ts";
import { runIp, until } from "../../../testing/netns.ts";
import tested from "../plugin.ts";

const RECORDS = [
  "--local-ttl=60",
  "--host-record=www.example.test,198.51.100.7,2001:db8::7",
  "--txt-record=short.example.test,hello",
  ...Array.from({ length: 40 }, (_, i) => `--host-record=many.example.test,198.51.100.${i + 1}`),
];

function attach(network: BridgeNetwork, site: NameSite): BridgeContainer {
  const container = network.container(2);
  network.call(tested, "ADD", site.config, { container, containerId: "one" });
  return container;
}

nameServerTest("other names are asked of the host's resolver, once in their lifetime", async (network) => {
  using site = newNameSite("nameserver 192.0.2.2\n");
  using resolver = await startDnsmasq(network.outside, "192.0.2.2", ...RECORDS);
  using _server = startNameServer(network.host, site.paths);
  const { netns } = attach(network, site);
  for (const _ of [1, 2]) {
    expect(digValues(netns, "@10.88.0.1", "www.example.test")).toEqual(["198.51.100.7"]);
    expect(digValues(netns, "@fd88::1", "WWW.example.test", "AAAA")).toEqual(["2001:db8::7"]);
    expect(digValues(netns, "@10.88.0.1", "+noedns", "short.example.test", "TXT")).toEqual(['"hello"']);
  }
  expect(dig(netns, "@10.88.0.1", "absent.example.test")?.status).toBe("REFUSED");
  await until(() => resolver.questions().includes("A absent.example.test"));
  expect(resolver.questions().slice(0, 3).sort()).toEqual([
    "A www.example.test",
    "AAAA WWW.example.test",
    "TXT short.example.test",
  ]);
  expect(new Set(resolver.questions().slice(3))).toEqual(new Set(["A absent.example.test"]));
}, ["dnsmasq"]);

nameServerTest("a long answer comes whole over TCP, and truncated over UDP", async (network) => {
  using site = newNameSite("nameserver 192.0.2.2\n");
  using _resolver = await startDnsmasq(network.outside, "192.0.2.2", ...RECORDS);
  using _server = startNameServer(network.host, site.paths);
  const { netns } = attach(network, site);
  const truncated = dig(netns, "@10.88.0.1", "+noedns", "+ignore", "many.example.test");
  expect(truncated?.flags).toContain("tc");
  expect(digValues(netns, "@10.88.0.1", "+noedns", "many.example.test")).toHaveLength(40);
  expect(digValues(netns, "@10.88.0.1", "+tcp", "+noedns", "many.example.test")).toHaveLength(40);
}, ["dnsmasq"]);

nameServerTest(
  "silent and refusing resolvers are passed over, and without any there is SERVFAIL",
  async (network) => {
    // Nothing answers for 192.0.2.99; port 53 of 192.0.2.1 is closed.
    using site = newNameSite("nameserver 192.0.2.99\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n");
    using _server = startNameServer(network.host, site.paths);
    const { netns } = attach(network, site);
    runIp(network.host, "neigh add 192.0.2.99 lladdr 02:00:00:00:00:99 dev up0");
    {
      using _resolver = await startDnsmasq(network.outside, "192.0.2.2", ...RECORDS);
      expect(digValues(netns, "@10.88.0.1", "www.example.test")).toEqual(["198.51.100.7"]);
    }
    writeFileSync(site.paths.resolvConf, "nameserver 192.0.2.1\n");
    expect(dig(netns, "@10.88.0.1", "www.example.test")?.status).toBe("SERVFAIL");
    writeFileSync(site.paths.resolvConf, "# none\n");
    expect(dig(netns, "@10.88.0.1", "www.example.test")?.status).toBe("SERVFAIL");
  },
);

nameServerTest("a changed file is followed, and the server never asks itself", async (network) => {
  using site = newNameSite("nameserver 10.88.0.1\nnameserver fd88::1\n");
  using _server = startNameServer(network.host, site.paths);
  const { netns } = attach(network, site);
  expect(dig(netns, "@10.88.0.1", "www.example.test")?.status).toBe("SERVFAIL");
  using resolver = await startDnsmasq(network.outside, "2001:db8::2", ...RECORDS);
  writeFileSync(
    site.paths.resolvConf,
    "search example.test\nnameserver 2001:db8::2 # the other one\noptions ndots:5\n",
  );
  expect(digValues(netns, "@10.88.0.1", "www.example.test")).toEqual(["198.51.100.7"]);
  // No other question was asked: ndots and search are the client's business.
  expect(dig(netns, "@10.88.0.1", "www")?.status).not.toBe("NOERROR");
  await until(() => resolver.questions().includes("A www"));
  expect(new Set(resolver.questions())).toEqual(new Set(["A www.example.test", "A www"]));
}, ["dnsmasq"]);
