/** The server's part that puts rules back, as the compiled binary starts it. What it does is in runtime/heal. */
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { finishedProcess } from "../../testing/binary.ts";
import { addDefaultRoute, newNamespaces, runInNetns, until } from "../../testing/netns.ts";
import { newServerSite } from "../../testing/server_site.ts";

test("rules that are flushed come back, and those of a container that is detached do not", async () => {
  await using site = newServerSite();
  using namespaces = newNamespaces();
  const { host, container } = namespaces;
  addDefaultRoute(host);
  const [file, cache] = [join(site.directory, "web.conflist"), join(site.directory, "cache")];
  const ipam = { type: "host-local", dataDir: join(site.directory, "ipam"), ranges: [[{ subnet: "10.9.0.0/24" }]] };
  const plugins = [
    { type: "bridge", bridge: "br9", isGateway: true, ipMasq: true, ipam },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "firewall" },
  ];
  writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins }));
  const server = host.run(() => site.start({ heals: true, options: ["--cache-dir", cache, "--plugin-dir", ":"] }));
  await server.untilReady();
  const run = (verb: string, ...words: string[]) => {
    const command = [join(site.bin, "cni"), "run", verb, file, container.path, "--container-id", "c1", ...words];
    const env = { CNI_SOCKET: site.socket };
    const finished = host.run(() => finishedProcess(Bun.spawnSync([...command, "--cache-dir", cache], { env })));
    expect(finished).toMatchObject({ exitCode: 0 });
  };
  // Chains may come back in another order.
  const ruleset = () => runInNetns(host, "nft", "list", "ruleset").split("\n").sort().join("\n");
  run("add", "-p", "8080:80");
  const before = ruleset();
  expect(before).toContain("8080");

  // The first time, the process may only start: then it does not know who it was.
  for (let i = 0; i < 2; i++) {
    runInNetns(host, "nft", "flush", "ruleset");
    await until(() => ruleset() === before);
  }
  await until(() => server.log().includes('by "nft"'));
  expect(server.log()).toMatch(/^cni: Restored rules of 1 attachment after changes by "nft" \(process [\d, ]+\): /m);
  const { pid } = site.status().parts.find(({ name }) => name === "heal")!;
  expect(pid).toBeGreaterThan(0);

  run("del");
  runInNetns(host, "nft", "flush", "ruleset");
  run("add");
  expect(ruleset()).not.toContain("8080");
});
