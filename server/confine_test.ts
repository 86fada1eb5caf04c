/** What code could still do that takes over the process of a part, as root. */
import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { OUTCOME } from "../testing/confined_program.ts";

const at = (path: string): string => JSON.stringify(join(REPOSITORY_ROOT, path));

/** Becomes the part, then tries this and that. Its arguments: the part, and the directory of the server. */
const PROGRAM = `
import { openSync, readFileSync, writeFileSync, closeSync } from "node:fs";
import { becomeConfined, CONFINED } from ${at("server/confine.ts")};
import { findPart } from ${at("server/part_definitions.ts")};
import { limitSystemCalls } from ${at("ffi/sys/confinement.ts")};
import { cStringArray, sys } from ${at("ffi/sys/libc.ts")};
const [name, directory, stage] = process.argv.slice(process.argv.indexOf("of") + 1);
const { rights } = findPart(name);
const settings = { directory, metricsAddress: "unix:" + directory + "/metrics.sock" };
if (stage !== CONFINED) becomeConfined(findPart(name), settings, ["-e", Bun.env.PROBE, "of", name, directory]);
limitSystemCalls(rights);
${OUTCOME}
const arm = process.arch === "arm64";
const read = (path) => () => closeSync(openSync(path, "r"));
console.log(JSON.stringify({
  readResolvers: outcome(read("/etc/resolv.conf")),
  readState: outcome(read(directory + "/dnsname/record.json")),
  readElsewhere: outcome(read(directory + "/other")),
  readDevice: outcome(read("/dev/full")),
  readOtherProcess: outcome(read("/proc/" + process.ppid + "/environ")),
  lock: outcome(read(directory + "/dnsname/lock")),
  writeState: outcome(() => writeFileSync(directory + "/dnsname/planted.json", "")),
  changeMode: outcome(() => sys.chmod(directory, 0o777)),
  execute: outcome(() => sys.execvp("/bin/true", cStringArray(["true"]))),
  signalSelf: outcome(() => sys.kill(process.pid, 0)),
  signalOther: outcome(() => sys.kill(process.ppid, 0)),
  fileSocket: outcome(() => sys.socket(1, 1, 0)),
  packetSocket: outcome(() => sys.socket(17, 3, 0)),
  cryptoSocket: outcome(() => sys.socket(38, 5, 0)),
  tcpSocket: outcome(() => sys.socket(2, 1, 0)),
  // Without the limit, the kernel has something else to say of these arguments.
  namespace: outcome(() => sys.setns(-1, 0)),
  userNamespace: outcome(() => sys.syscall(arm ? 220 : 56, 0x10000200, null, 0, 0)),
  descriptorOfOther: outcome(() => sys.syscall(438, -1, null, 0, 0)),
}));
// Threads can be started.
await new Promise((resolve) => setTimeout(resolve, 1));
new Worker(URL.createObjectURL(new Blob(["postMessage(1)"]))).onmessage = () => process.exit(0);
`;

const LIMITED = {
  ...{ execute: "EPERM", changeMode: "EPERM", signalSelf: "done", signalOther: "EPERM" },
  ...{ cryptoSocket: "EPERM", tcpSocket: "done", userNamespace: "EPERM", descriptorOfOther: "EPERM" },
};

const OUTCOMES: Readonly<Record<string, object>> = {
  dnsname: {
    ...{ readResolvers: "done", readState: "done", readElsewhere: "EACCES", readDevice: "EACCES" },
    ...{ readOtherProcess: "EACCES", lock: "done", writeState: "EACCES" },
    ...{ ...LIMITED, fileSocket: "EPERM", packetSocket: "EPERM", namespace: "EPERM" },
  },
  metrics: {
    ...{ readResolvers: "done", readState: "done", readElsewhere: "done", readDevice: "done" },
    ...{ readOtherProcess: "EACCES", lock: "ENOENT", writeState: "done" },
    ...{ ...LIMITED, fileSocket: "done", packetSocket: "EPERM", namespace: "EPERM" },
  },
  dhcp: {
    ...{ readResolvers: "done", readState: "done", readElsewhere: "done", readDevice: "done" },
    ...{ readOtherProcess: "done", lock: "ENOENT", writeState: "done" },
    ...{ ...LIMITED, fileSocket: "EPERM", packetSocket: "done", namespace: "EBADF" },
  },
  cluster: {
    ...{ readResolvers: "done", readState: "done", readElsewhere: "done", readDevice: "done" },
    ...{ readOtherProcess: "done", lock: "ENOENT", writeState: "done" },
    ...{ ...LIMITED, fileSocket: "EPERM", packetSocket: "EPERM", namespace: "EBADF" },
  },
};

/** What it could do, as text of JSON. @param wrapper a command that ends by executing its arguments */
async function probe(name: string, wrapper: readonly string[] = []): Promise<unknown> {
  const directory = mkdtempSync("/tmp/cni-confine-");
  const source = join(directory, "probe.ts");
  writeFileSync(source, PROGRAM);
  writeFileSync(join(directory, "other"), "");
  mkdirSync(join(directory, "dnsname"));
  writeFileSync(join(directory, "dnsname/record.json"), "");
  const { outputs: [bundle] } = await Bun.build({ entrypoints: [source], target: "bun", minify: true });
  const PROBE = await bundle!.text();
  const nothing = openSync("/dev/null", "r");
  const child = Bun.spawn([...wrapper, process.execPath, "-e", PROBE, "of", name, directory], {
    // The descriptors of a part.
    stdio: ["ignore", "pipe", "inherit", nothing, nothing, nothing],
    env: { ...process.env, PROBE },
  });
  const text = await new Response(child.stdout).text();
  expect(await child.exited).toBe(0);
  rmSync(directory, { recursive: true });
  return JSON.parse(text);
}

test.each(Object.keys(OUTCOMES))("the part %s can do what it needs, and little else", async (name) => {
  expect(await probe(name)).toEqual(OUTCOMES[name]);
});

test("the resolvers may be anywhere", async () => {
  const script = "mount -t tmpfs none /mnt && echo >/mnt/resolv.conf && mount -t tmpfs none /etc && " +
    'ln -s /mnt/resolv.conf /etc && exec "$@"';
  expect(await probe("dnsname", ["unshare", "-m", "sh", "-c", script, "sh"])).toMatchObject({ readResolvers: "done" });
});
