/** The built-in network beside firewalls that drop what is forwarded. */
import { expect } from "bun:test";
import { testWith } from "../testing/binary.ts";
import { cleanNodeState, newTestNode, NODE_PROGRAMS, nodeState } from "../testing/node.ts";
import { requestTcp, serveTcp } from "../testing/traffic.ts";

/** What Docker makes of FORWARD, once before and once behind the ADD. */
const DOCKER = ["iptables", "ip6tables"].map((program) =>
  [
    "-P FORWARD DROP; -N DOCKER-USER; -A DOCKER-USER -j RETURN; -N DOCKER; -N DOCKER-FORWARD",
    "-A DOCKER-FORWARD -o docker0 -j DOCKER; -A DOCKER-FORWARD -i docker0 -j ACCEPT; -A DOCKER ! -i docker0 -o docker0 -j DROP",
    "-I FORWARD -j DOCKER-FORWARD; -I FORWARD -j DOCKER-USER",
  ].join("; ").split("; ").map((words) => `${program} ${words}`).join("\n")
).join("\n");

for (const when of ["before", "after"]) {
  testWith(
    NODE_PROGRAMS,
    `containers of the built-in network are connected where Docker came ${when} them`,
    async () => {
      using node = await newTestNode();
      using _outside = serveTcp(node.outside, "outside", 80);
      const cni = (...words: string[]) => node.run("/opt/cni/bin/cni", ...words);
      const docker = () => node.run("sh", "-e", "-c", DOCKER);
      if (when === "before") docker();
      cni("netns", "add", "web");
      cni("run", "add", "default", "web", "-p", "8080:80");
      if (when === "after") docker();
      const inContainer = ["nsenter", "--net=/run/netns/web", "busybox", "nc"];
      expect(await new Response(node.start(...inContainer, "192.0.2.2", "80").stdout).text()).toBe("outside 192.0.2.1");
      node.start(...inContainer, "-l", "-l", "-p", "80", "-e", "echo", "web");
      let answer: string | undefined;
      // Until it listens, it refuses.
      while (answer === undefined) answer = await requestTcp(node.outside, "192.0.2.1", 8080);
      expect(answer).toBe("web\n");
      cni("run", "check", "default", "web");
      cni("run", "del", "default", "web");
      cni("netns", "del", "web");
      node.run(
        "sh",
        "-c",
        "for program in iptables ip6tables; do $program -F; $program -X; $program -P FORWARD ACCEPT; done",
      );
      node.run("nft", "delete table ip filter; delete table ip6 filter");
      expect(nodeState(node)).toEqual(cleanNodeState("cni0"));
    },
  );
}
