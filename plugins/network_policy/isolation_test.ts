/** What a bridge forwards by itself, which no policy names: real packets. */
import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { ping, runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { type PodLinks, siteTest } from "../../testing/policy_site.ts";
import { newDesired, newPoliced, newPolicyChain, reach, servePod } from "../../testing/policy_traffic.ts";
import { openInNetns } from "../../testing/traffic.ts";

const WAIT_MS = 150;

/** Whether a packet to all that listen on a link reaches a container. */
async function hearsGroup(from: Netns, to: Netns, group: string): Promise<boolean> {
  let isHeard = false;
  const hostname = group.includes(":") ? "::" : "0.0.0.0";
  const socket = { error() {}, data: () => void (isHeard = true) };
  const listener = await openInNetns(to, () => Bun.udpSocket({ hostname, port: 5353, socket }));
  const sender = await openInNetns(from, () => Bun.udpSocket({ hostname, socket: { error() {} } }));
  sender.setBroadcast(true);
  sender.send("x", 5353, group);
  await Bun.sleep(WAIT_MS);
  listener.close();
  sender.close();
  return isHeard;
}

for (const links of ["bridged", "bridged past iptables"] as const satisfies readonly PodLinks[]) {
  siteTest(
    links,
    "an isolated pod gets nothing that the bridge forwards by itself",
    async (site, ruleset, resources) => {
      const [a, b, old] = [site.newPod(2), site.newPod(3), site.newPod(4)];
      // The third is of a time before the plugin.
      for (const pod of [a, b]) site.add(pod, {});
      const pods = (ingress?: string) =>
        newDesired([newPoliced(a, { ...ingress && { ingress } }), newPoliced(b)], [newPolicyChain("in", "ingress")]);
      ruleset.replace(pods());
      await servePod(resources, a);
      const groups = async () => {
        const heard: boolean[] = [];
        for (const { netns } of [b, old]) heard.push(await hearsGroup(netns, a.netns, "10.88.255.255"));
        return heard;
      };
      const linkLocal = (netns: Netns) => {
        const [own] = JSON.parse(runInNetns(netns, "ip", "-j", "-6", "addr", "show", "dev", "eth0", "scope", "link"));
        return own.addr_info.find(({ scope }: { scope: string }) => scope === "link").local as string;
      };
      const pings = (from: Netns, source = "eth0") => {
        try {
          runInNetns(from, "busybox", "ping", "-c1", "-W1", "-I", source, `${linkLocal(a.netns)}%eth0`);
          return true;
        } catch {
          return false;
        }
      };
      expect(await groups()).toEqual([true, true]);
      expect([b, old].map(({ netns }) => pings(netns))).toEqual([true, true]);
      ruleset.replace(pods("in"));
      runShellInNetns(b.netns, "ip -6 neigh flush dev eth0; ip neigh flush dev eth0");
      expect(await groups()).toEqual([false, false]);
      expect([b, old].map(({ netns }) => pings(netns))).toEqual([false, false]);
      expect([await reach(b.netns, a), await reach(old.netns, a)]).toEqual([
        { tcp: "-", udp: "-" },
        { tcp: "-", udp: "-" },
      ]);
      // Its own node, also after the neighbours have been forgotten.
      runShellInNetns(site.host, "ip -6 neigh flush dev br0; ip neigh flush dev br0");
      for (const ip of a.ips) ping(site.host, ip);
    },
  );
}
