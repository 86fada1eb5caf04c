/** Networks that `podman network create` makes contain `dnsname`: containers on them find each other by name. */
import { beforeAll, describe, expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { CNI_PROGRAM, CNI_UNDER_TEST, testWith } from "../testing/binary.ts";
import { usePodman } from "../testing/engines.ts";
import { until } from "../testing/netns.ts";
import type { TestNode } from "../testing/node.ts";
import { PODMAN_PROGRAMS } from "../testing/podman.ts";

describe("podman", () => {
  const used = usePodman();
  beforeAll(async () => {
    if (PODMAN_PROGRAMS.every((program) => Bun.which(program))) await startServer(used.node);
  });

  const ask = (container: string, name: string): string =>
    used.node.run("podman", "exec", container, "/bin/busybox", "nslookup", name);

  testWith(PODMAN_PROGRAMS, "containers of a new network find each other, and leave nothing", () => {
    const { node, podman } = used;
    podman.podman("network", "create", "--ipv6", "--subnet", "10.93.0.0/24", "--subnet", "fd93::/64", "names");
    const file = join(node.networks, "names.conflist");
    const written = readFileSync(file, "utf8");
    expect(JSON.parse(written).plugins).toContainEqual({
      type: "dnsname",
      domainName: "dns.podman",
      capabilities: { aliases: true },
    });
    using web = podman.start("web", "--network", "names", "--network-alias", "www");
    using _client = podman.start("client", "--network", "names");
    expect(node.run("podman", "exec", "client", "/bin/busybox", "cat", "/etc/resolv.conf")).toMatch(
      /^search dns\.podman.*\nnameserver 10\.93\.0\.1\nnameserver fd93::1\n/,
    );
    for (const name of ["web", "www", "web.dns.podman", web.id.slice(0, 12)]) {
      expect(ask("client", name)).toContain(`Address: ${web.ip}\n`);
    }
    expect(ask("client", web.ip)).toContain("name = web.dns.podman");
    expect(ask("web", "client")).toContain("Address: fd93::3\n");
    expect(readFileSync(file, "utf8")).toBe(written);

    node.run("podman", "rm", "-f", "-t", "0", "web");
    expect(() => ask("client", "web.dns.podman")).toThrow("ended with 1");
    node.run("podman", "rm", "-f", "-t", "0", "client");
    expect(node.run("sh", "-c", "ls /run/cni/dnsname")).toBe("lock\nrules.lock\n");
    expect(node.run("ss", "-Hlntu")).not.toContain(":53");
  });

  testWith(
    [...PODMAN_PROGRAMS, "dig"],
    "networks of cni network create --dns have names too, those of namespaces",
    () => {
      const { node } = used;
      const cni = (...words: string[]) => node.run(CNI_UNDER_TEST, ...words);
      for (const [driver, gateway] of [["bridge", "10.94.0.1"], ["ptp", "10.95.0.1"]] as const) {
        cni("network", "create", driver, "-d", driver, "--dns", "--subnet", `${gateway}/24`.replace(".1/", ".0/"));
        for (const container of ["c1", "c2"]) {
          cni("netns", "add", container);
          const effects = cni("run", "add", driver, container, "--dry-run", "--verbose");
          expect(effects).toContain(`have the server read the names of "${driver}:cnitool-`);
          cni("run", "add", driver, container);
        }
        const ask = (...words: string[]) =>
          node.run("ip", "netns", "exec", "c1", "dig", "+short", "+tries=1", `@${gateway}`, ...words);
        for (const name of ["c2", `C2.${driver}.internal`]) expect(ask(name)).toBe(`${gateway.replace(/1$/, "3")}\n`);
        expect(ask("-x", gateway.replace(/1$/, "2"))).toBe(`c1.${driver}.internal.\n`);
        cni("run", "check", driver, "c1");
        for (const container of ["c1", "c2"]) {
          cni("run", "del", driver, container);
          cni("netns", "rm", container);
        }
      }
    },
  );
});

/** On the node, whose mounts it keeps. */
async function startServer({ run, start }: TestNode): Promise<void> {
  // Else it would enter the mounts of process 1, as a container that serves its host does.
  run("mount", "-t", "tmpfs", "none", "/proc/1");
  const log = "/run/names-serve.log";
  start("sh", "-c", `exec ${CNI_PROGRAM} serve --socket /run/cni/cni.sock >${log} 2>&1`);
  await until(() => run("sh", "-c", `cat ${log} || :`).includes("Listening"));
  run("umount", "/proc/1");
}
