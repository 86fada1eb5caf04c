/** Who may use a server: callers that could do the same themselves. The others do it themselves. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { release } from "node:os";
import { dirname, join } from "node:path";
import { REPOSITORY_ROOT } from "../../scripts/src/repository.ts";
import { CNI_PROGRAM, finishedProcess, testWith } from "../../testing/binary.ts";
import { until } from "../../testing/netns.ts";
import { newServerSite, type ServerProcess, type ServerSite } from "../../testing/server_site.ts";

let site: ServerSite;
let server: ServerProcess;
beforeAll(async () => {
  site = newServerSite();
  // Others may run the shim and the program, wherever the checkout is: only root enters /root.
  chmodSync(site.directory, 0o755);
  const program = join(site.bin, "cni-full");
  rmSync(program);
  copyFileSync(CNI_PROGRAM, program);
  server = site.start();
  await server.untilReady();
});
afterAll(() => site[Symbol.asyncDispose]());

const NOT_ALLOWED = [
  ["a user without rights, who may open the socket", ["setpriv", "--reuid=65534", "--clear-groups"]],
  ["root without CAP_NET_ADMIN", ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"]],
  ["root without CAP_SYS_ADMIN", ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"]],
  ["root of another user namespace", ["unshare", "--user", "--map-root-user"]],
  ["root of another mount namespace", ["unshare", "--mount"]],
  ["root of another pid namespace", ["unshare", "--pid", "--fork"]],
] as const;

test("root and its programs in other network namespaces may use it", async () => {
  const before = site.status();
  expect(await site.callVersion()).toMatchObject({ exitCode: 0, stderr: "" });
  expect(await site.callVersion(["unshare", "--net"])).toMatchObject({ exitCode: 0, stderr: "" });
  await until(() => site.status().served === before.served + 2);
  expect(site.status().fellBack).toEqual(before.fellBack);
});

test.each(NOT_ALLOWED)("%s may not, and does it itself", async (_, wrapper) => {
  const expected = await site.callVersion();
  const directory = dirname(site.socket);
  chmodSync(directory, 0o755);
  chmodSync(site.socket, 0o666);
  const { fellBack } = site.status();
  const answer = await site.callVersion([...wrapper]);
  chmodSync(directory, 0o700);
  chmodSync(site.socket, 0o600);
  expect(answer).toEqual(expected);
  // A worker counts after it has closed the connection.
  await until(() => site.status().fellBack.notAllowed > fellBack.notAllowed);
  expect(site.status().fellBack).toEqual({ ...fellBack, notAllowed: fellBack.notAllowed + 1 });
});

test("root without all rights may not replace a server", async () => {
  const { pid } = site.status();
  const other = site.start({
    options: ["--replace"],
    wrapper: ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"],
  });
  expect(await other.process.exited).toBe(1);
  expect(other.log()).toBe(
    "cni: Cannot replace the server: it accepts only root with its rights, in its namespaces\n",
  );
  expect(await site.callVersion()).toMatchObject({ exitCode: 0, stderr: "" });
  expect(site.status().pid).toBe(pid);
});

test("a caller with another root directory may not", async () => {
  const { notAllowed } = site.status().fellBack;
  const call = Bun.spawn(["chroot", site.directory, "/bin/bridge"], {
    env: { PATH: process.env.PATH, CNI_COMMAND: "VERSION", CNI_SOCKET: "/run/cni.sock" },
    stdin: "ignore",
  });
  // The full binary does not start there: it has no C library.
  expect(JSON.parse(await call.stdout.text())).toMatchObject({ code: 5 });
  await until(() => site.status().fellBack.notAllowed === notAllowed + 1);
});

/** A caller without rights ends while it waits, and a process with all rights gets its number. */
const REUSED_NUMBER = `
import { writeFileSync } from "node:fs";
import { isAllowed, namespacesOf } from "${REPOSITORY_ROOT}/server/caller.ts";
import { acceptConnection, listenAt, peerCredentials } from "${REPOSITORY_ROOT}/ffi/sys/unix_socket.ts";
const [socket, program] = process.argv.slice(-2);
using listener = listenAt(socket + ".control");
const caller = Bun.spawn(
  ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all", program, "serve", "--status", "--socket", socket],
  { stdio: ["ignore", "ignore", "ignore"] },
);
using connection = acceptConnection(listener.fd);
const ask = () => console.log(isAllowed(peerCredentials(connection.fd), namespacesOf("self")));
ask();
caller.kill("SIGKILL");
await caller.exited;
ask();
let other;
do {
  other?.kill();
  writeFileSync("/proc/sys/kernel/ns_last_pid", String(caller.pid - 1));
  other = Bun.spawn(["sleep", "600"]);
} while (other.pid !== caller.pid);
ask();
other.kill();
`;

const REUSED_NUMBER_NAME = "a process that gets the number of a caller that has ended does not give it its rights";
// Only SO_PEERPIDFD tells.
const isTold = Bun.semver.order(/^\d+\.\d+\.\d+/.exec(release())![0], "6.5.0") >= 0;

test.skipIf(!isTold)(`${REUSED_NUMBER_NAME}${isTold ? "" : " # needs Linux 6.5"}`, () => {
  const { stdout, stderr } = finishedProcess(Bun.spawnSync(
    [
      ...["unshare", "--pid", "--fork", "--mount-proc", process.execPath, "-e", REUSED_NUMBER],
      ...[join(site.directory, "reused"), CNI_PROGRAM],
    ],
    { stderr: "pipe" },
  ));
  expect({ stdout, stderr }).toEqual({ stdout: "false\nundefined\nundefined\n", stderr: "" });
});

test("a user without rights does not reach the socket", async () => {
  const before = site.status();
  const wrapper = ["setpriv", "--reuid=65534", "--clear-groups"];
  expect(await site.callVersion(wrapper)).toMatchObject({ exitCode: 0, stderr: "" });
  expect(site.status().fellBack).toEqual(before.fellBack);
});

testWith(["cc"], "a shim of another version is told apart from other callers", async () => {
  const { otherVersion } = site.status().fellBack;
  const original = join(import.meta.dir, "../../server/shim/shim.c");
  const text = readFileSync(original, "utf8");
  const [source, program] = ["shim.c", "bin/older"].map((name) => join(site.directory, name)) as [string, string];
  writeFileSync(source, text.replace("#define PROTOCOL_VERSION 1", "#define PROTOCOL_VERSION 1000"));
  const compiled = Bun.spawnSync([
    "cc",
    "-Os",
    "-static",
    "-nostdlib",
    "-ffreestanding",
    "-fno-stack-protector",
    "-iquote",
    dirname(original),
    "-o",
    program,
    source,
  ]);
  expect(compiled.stderr.toString()).toBe("");
  const call = Bun.spawn([program], { env: { CNI_COMMAND: "VERSION", CNI_SOCKET: site.socket }, stdin: "ignore" });
  // The full binary does not know this plugin.
  expect(JSON.parse(await call.stdout.text())).toMatchObject({ code: 7 });
  await until(() => site.status().fellBack.otherVersion === otherVersion + 1);
});

/** Process 1 of a new process namespace stays in one mount namespace; a container in another starts a server. */
const CONTAINER = `
mount -t proc proc /proc
: >"$1/container-log"
unshare --mount --propagation private sh -c 'mount -t tmpfs none /mnt; exec "$0/bin/cni-full" serve --socket "$0/run/host.sock"' "$1" >"$1/container-log" 2>&1 &
until grep -q Listening "$1/container-log"; do kill -0 $! || exit 1; sleep 0.05; done
test "$(readlink /proc/$!/ns/mnt)" = "$(readlink /proc/1/ns/mnt)" || exit 2
export CNI_SOCKET="$1/run/host.sock" CNI_COMMAND=VERSION
"$1/bin/bridge" </dev/null || exit 3
# A worker counts after it has answered.
until unshare --mount --propagation private sh -c "$STATUS" "$1" | grep '"served":1'; do sleep 0.05; done
kill $!
wait $!
`;
/** Another container asks, which does not see the socket. */
const STATUS = `
mount -t tmpfs none "$0/run"
exec "$0/bin/cni" serve --socket "$0/run/host.sock" --status --json
`;

test("a server in a container that sees the processes of its host serves the host", async () => {
  const child = Bun.spawn(
    ["unshare", "--pid", "--fork", "--mount", "--propagation", "private", "sh", "-c", CONTAINER, "sh", site.directory],
    { env: { ...process.env, STATUS }, stdin: "ignore", stderr: "pipe" },
  );
  const [stdout, stderr, exitCode] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  expect({ stderr, exitCode }).toEqual({ stderr: "", exitCode: 0 });
  const [version = "", status = ""] = stdout.trim().split("\n").filter((line) => line !== "");
  expect(JSON.parse(version)).toHaveProperty("supportedVersions");
  expect(JSON.parse(status)).toMatchObject({ served: 1, fellBack: { notAllowed: 0 } });
  expect(existsSync(join(site.directory, "run/host.sock"))).toBe(false);
});
