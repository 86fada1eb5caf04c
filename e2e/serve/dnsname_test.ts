/** The part of the server that answers names. */
import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { digValues, nameServerTest } from "../../testing/dnsname.ts";
import { until } from "../../testing/netns.ts";
import { isRunning, newServerSite, type ServerSite } from "../../testing/server_site.ts";

const pidOf = (site: ServerSite): number | undefined => site.status().parts.find(({ name }) => name === "dnsname")?.pid;

nameServerTest(
  "cni serve starts it for the first client, again after its end, and after a --replace",
  async (network) => {
    const { host } = network;
    await using site = newServerSite();
    const server = host.run(() => ({ process: site.start() })).process;
    await server.untilReady();
    expect(pidOf(site)).toBeUndefined();
    const container = network.container(2);
    const call = async (command: string): Promise<string> => {
      const child = host.run(() => ({
        process: site.startPlugin("dnsname", {
          CNI_COMMAND: command,
          CNI_CONTAINERID: "one",
          CNI_IFNAME: "eth0",
          CNI_NETNS: container.netns.path,
          CNI_ARGS: "K8S_POD_NAME=pod",
        }),
      })).process;
      child.stdin.write(JSON.stringify({
        ...{ cniVersion: "1.0.0", name: "web", type: "dnsname", domainName: "dns.test" },
        ...{ dataDir: join(site.socket, "../dnsname"), daemonSocketPath: join(site.socket, "../dnsname.sock") },
        prevResult: { cniVersion: "1.0.0", ...container.result },
      }));
      child.stdin.end();
      return await new Response(child.stdout).text();
    };
    expect(JSON.parse(await call("ADD"))).toMatchObject({ dns: { nameservers: ["10.88.0.1", "fd88::1"] } });
    const values = () => digValues(container.netns, "@10.88.0.1", "+timeout=1", "pod.dns.test");
    expect(values()).toEqual(["10.88.0.2"]);

    const first = pidOf(site)!;
    // Ports below 1024 are all that it may take.
    expect(readFileSync(`/proc/${first}/status`, "utf8")).toMatch(/^CapEff:\t0000000000000400$/m);
    process.kill(first, "SIGKILL");
    await until(() => values().length > 0);
    const second = pidOf(site)!;
    expect(second).not.toBe(first);

    const next = host.run(() => ({ process: site.start({ options: ["--replace"] }) })).process;
    await next.untilReady();
    await until(() => values().length > 0 && ![undefined, second].includes(pidOf(site)));
    expect(await call("CHECK")).toBe("");

    const third = pidOf(site)!;
    next.process.kill("SIGKILL");
    await until(() => !isRunning(third));
    expect(values()).toEqual([]);
  },
);
