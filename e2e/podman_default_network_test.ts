/** podman with the network that it ships, and with networks that it makes: our links are all that is different. */
import { describe, expect } from "bun:test";
import { readdirSync } from "node:fs";
import { runInNetns } from "../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, requestUdp, serveTcp, serveTcpAndUdp } from "../testing/traffic.ts";
import { testWith } from "../testing/binary.ts";
import { usePodmanAsShipped } from "../testing/engines.ts";
import { cleanNodeState, nodeState } from "../testing/node.ts";
import { PODMAN_PROGRAMS } from "../testing/podman.ts";

describe("podman's own networks", () => {
  const used = usePodmanAsShipped();

  testWith(PODMAN_PROGRAMS, "publishes TCP and UDP on its default network, over stop and start", async () => {
    const { node, podman } = used;
    const { host, outside } = node;
    expect(nodeState(node)).toEqual(cleanNodeState());
    using other = podman.start("other");
    podman.podman("run", "-d", "--name", "a", "-p", "8080:80", "-p", "5353:53/udp", "web:1");
    for (const round of ["run", "start"]) {
      if (round === "start") podman.podman("start", "a");
      using a = podman.container("a");
      using _a = await serveTcpAndUdp(a.netns, "a");
      expect(JSON.stringify(nodeState(node))).toContain(`podman ${a.id} eth0`);
      expect(a.addresses("eth0")).toEqual([expect.stringMatching(/^10\.88\.0\.\d+\/16$/)]);
      expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("a 192.0.2.2");
      expect(await requestUdp(outside, "192.0.2.1", 5353)).toBe("a 192.0.2.2");
      expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("a 10.88.0.1");
      expect(await requestUdp(host, "192.0.2.1", 5353)).toStartWith("a ");
      expect(await requestTcp(other.netns, a.ip, 80)).toBe(`a ${other.ip}`);
      expect(await requestTcp(other.netns, "192.0.2.1", 8080)).toBe("a 10.88.0.1");
      expect(await requestTcp(a.netns, "192.0.2.1", 8080)).toBe("a 10.88.0.1");
      using _outside = await serveTcpAndUdp(outside, "outside");
      expect(await requestTcp(a.netns, "192.0.2.2", 80)).toBe("outside 192.0.2.1");
      expect(await requestUdp(a.netns, "192.0.2.2", 53)).toBe("outside 192.0.2.1");

      podman.podman("stop", "-t", "0", "a");
      expect(await requestTcp(outside, "192.0.2.1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
      expect(JSON.stringify(nodeState(node))).not.toContain(a.id);
    }
    podman.podman("rm", "a");
    podman.podman("rm", "-f", "-t", "0", "other");
    expect(nodeState(node)).toEqual(cleanNodeState("cni-podman0"));
  });

  testWith(PODMAN_PROGRAMS, "publishes ports also where another program has the host forward nothing", async () => {
    const { node, podman } = used;
    const { outside, run } = node;
    const own = "iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER; iptables -A DOCKER-USER -j RETURN";
    run("sh", "-ec", `iptables -P FORWARD DROP; ${own}`);
    const before = nodeState(node);
    podman.podman("run", "-d", "--name", "a", "-p", "8080:80", "-p", "5353:53/udp", "web:1");
    {
      using a = podman.container("a");
      using _a = await serveTcpAndUdp(a.netns, "a");
      expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("a 192.0.2.2");
      expect(await requestUdp(outside, "192.0.2.1", 5353)).toBe("a 192.0.2.2");
      runInNetns(outside, "ip", "route", "add", "10.88.0.0/16", "via", "192.0.2.1");
      expect(await requestTcp(outside, a.ip, 80, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
      expect(await requestTcp(outside, "192.0.2.1", 80, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
      runInNetns(outside, "ip", "route", "del", "10.88.0.0/16");
    }
    podman.podman("rm", "-f", "-t", "0", "a");
    expect(nodeState(node)).toEqual(before);
    run("sh", "-ec", "nft delete table ip filter");
  });

  testWith(PODMAN_PROGRAMS, "gives the addresses that are asked for, once", async () => {
    const { node, podman } = used;
    podman.podman("network", "create", "--disable-dns", "--subnet", "10.91.0.0/24", "fixed");
    {
      using a = podman.start("a", "--ip", "10.88.0.77", "--mac-address", "02:00:00:00:00:77");
      using b = podman.start("b", "--network", "fixed:ip=10.91.0.9,mac=02:00:00:00:01:09");
      expect([a.ip, a.mac, b.ip, b.mac]).toEqual([
        ...["10.88.0.77", "02:00:00:00:00:77"],
        ...["10.91.0.9", "02:00:00:00:01:09"],
      ]);
      using _a = await serveTcpAndUdp(a.netns, "a");
      expect(await requestTcp(node.host, "10.88.0.77", 80)).toBe("a 10.88.0.1");
      const before = nodeState(node);
      expect(() => podman.start("c", "--ip", "10.88.0.77")).toThrow(
        `Cannot reserve requested address 10.88.0.77: container "${a.id}"`,
      );
      podman.podman("rm", "c");
      expect(nodeState(node)).toEqual(before);
    }
    podman.podman("rm", "-f", "-a", "-t", "0");
    podman.podman("network", "rm", "fixed");
    expect(nodeState(node)).toEqual(cleanNodeState("cni-podman0"));
  });

  testWith(PODMAN_PROGRAMS, "puts a container on two networks, and takes it off one", async () => {
    const { node, podman } = used;
    const { outside } = node;
    const create = ["network", "create", "--disable-dns"];
    podman.podman(...create, "--subnet", "10.91.0.0/24", "n1");
    podman.podman(...create, "--subnet", "10.92.0.0/24", "--ipv6", "--subnet", "fd92::/64", "n2");
    const answers = async (asked: string) => (await requestTcp(outside, "192.0.2.1", 8080)) === `${asked} 192.0.2.2`;
    {
      using a = podman.start("a", "--network", "n1,n2", "-p", "8080:80");
      using one = podman.start("one", "--network", "n1");
      using two = podman.start("two", "--network", "n2");
      using _a = await serveTcpAndUdp(a.netns, "a");
      const [first, second] = [a.addresses("eth0"), a.addresses("eth1")];
      const of = (addresses: string[], subnet: string) =>
        addresses.find((each) => each.startsWith(subnet))?.replace(/\/.*/, "");
      const both = [...first, ...second];
      const on = { n1: of(both, "10.91.0."), n2: of(both, "10.92.0."), v6: of(both, "fd92::") };
      expect(await requestTcp(one.netns, on.n1!, 80)).toBe(`a ${one.ip}`);
      expect(await requestTcp(two.netns, on.n2!, 80)).toBe(`a ${two.ip}`);
      expect(await requestTcp(two.netns, on.v6!, 80)).toStartWith("a fd92::");
      expect(await answers("a")).toBe(true);

      // What published the port goes; it stays published over the other.
      podman.podman("network", "disconnect", "n1", "a");
      expect(JSON.stringify(nodeState(node))).not.toContain(`n1 ${a.id}`);
      expect(await requestTcp(two.netns, on.n2!, 80)).toBe(`a ${two.ip}`);
      expect(await answers("a")).toBe(true);
      podman.podman("network", "connect", "n1", "a");
      podman.podman("network", "disconnect", "n2", "a");
      expect(await answers("a")).toBe(true);
      podman.podman("network", "reload", "-a");
      expect(await answers("a")).toBe(true);
    }
    podman.podman("rm", "-f", "-a", "-t", "0");
    podman.podman("network", "rm", "n1", "n2");
    expect(nodeState(node)).toEqual(cleanNodeState("cni-podman0"));
    expect(readdirSync(node.networks).filter((name) => name.startsWith("n"))).toEqual([]);
  });

  testWith(
    [...PODMAN_PROGRAMS, "ss"],
    "publishes ports that its supervisor listens on itself, and none that a program of the host does",
    async () => {
      const { node, podman } = used;
      const { host, outside, run } = node;
      {
        using _host = serveTcp(host, "host", 8081, "0.0.0.0");
        expect(() => podman.start("b", "-p", "8081:80")).toThrow(
          new RegExp(String.raw`host port 8081/tcp: "[^"]+" \(process ${process.pid}\) listens on 0\.0\.0\.0:8081`),
        );
        podman.podman("rm", "b");
      }
      {
        // With a user namespace, networks are connected when the supervisor runs already.
        using _u = podman.start("u", "--uidmap", "0:100000:5000", "-p", "8082:80");
        podman.podman("rm", "-f", "-t", "0", "u");
      }
      {
        using _b = podman.start("b", "-p", "8081:80", "-p", "5354:53/udp");
        expect(run("ss", "-tulnpH")).toMatch(/:5354 .*"conmon"[^]*:8081 .*"conmon"/);
        podman.podman("network", "reload", "b");
        expect(() => podman.start("c", "-p", "8081:80")).toThrow(
          /host port 8081\/tcp: container "\w+" \(network "podman"/,
        );
        podman.podman("rm", "c");
      }
      podman.podman("restart", "-t", "0", "b");
      using b = podman.container("b");
      using _b = await serveTcpAndUdp(b.netns, "b");
      expect(await requestTcp(outside, "192.0.2.1", 8081)).toBe("b 192.0.2.2");
      podman.podman("rm", "-f", "-t", "0", "b");
      expect(nodeState(node)).toEqual(cleanNodeState("cni-podman0"));
    },
  );
});
