/** How often `cni run add` of a whole chain reads one kernel parameter, by its system calls. @module */
import { expect } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { O_WRONLY } from "../ffi/sys/uapi.ts";
import { bytesOf, parseTrace, STRACE_COMMAND } from "../scripts/src/harness/trace.ts";
import { newNamespaces } from "../testing/netns.ts";
import { CNI_PROGRAM, ENGINE_ENV, testWith } from "../testing/binary.ts";

const O_ACCMODE = 0o3;

testWith(["strace"], "cni run add reads no kernel parameter more than twice", () => {
  using resources = new DisposableStack();
  const { host, container } = resources.use(newNamespaces());
  const root = mkdtempSync(join(tmpdir(), "cni-sysctls-"));
  resources.defer(() => rmSync(root, { recursive: true }));
  const ranges = [[{ subnet: "10.9.4.0/24" }], [{ subnet: "fd00:9:4::/64" }]];
  const ipam = { type: "host-local", dataDir: root, ranges };
  const sysctl = { "net.ipv4.conf.IFNAME.arp_filter": "1", "net.ipv4.conf.IFNAME.log_martians": "0" };
  const plugins = [
    { type: "bridge", bridge: "br0", isGateway: true, ipMasq: true, ipam },
    { type: "tuning", dataDir: join(root, "tuning"), sysctl, mtu: 1400 },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "firewall" },
  ];
  const [file, trace] = [join(root, "run.conflist"), join(root, "trace")];
  writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "run", plugins }));
  const words = [container.path, "--container-id", "c1", "--publish", "8080:80", "--cache-dir", root];
  const { exitCode, stderr } = host.run(() =>
    Bun.spawnSync([...STRACE_COMMAND, "-o", trace, CNI_PROGRAM, "run", "add", file, ...words], { env: ENGINE_ENV })
  );
  expect([exitCode, stderr.toString()]).toEqual([0, ""]);

  const reads = new Map<string, number>();
  for (const { name, args, error } of parseTrace(readFileSync(trace, "latin1"))) {
    const path = name === "openat" ? new TextDecoder().decode(bytesOf(args[1])) : "";
    if (!path.startsWith("/proc/sys/net/") || error || (Number(args[2]) & O_ACCMODE) === O_WRONLY) continue;
    reads.set(path, (reads.get(path) ?? 0) + 1);
  }
  expect(reads.get("/proc/sys/net/ipv4/conf/eth0/arp_filter")).toBe(2);
  expect([...reads].filter(([, count]) => count > 2)).toEqual([]);
});
