/** What places start ends with them. The root of a place in a place is that of the outer one, so nothing is downloaded. */
import { expect, test } from "bun:test";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testWith } from "../../../testing/binary.ts";
import { useDirectory } from "../../../testing/directory.ts";
import { startDnsmasq } from "../../../testing/dnsmasq.ts";
import { markedCommands } from "../../../testing/marked_processes.ts";
import { newNetns, runIp, until } from "../../../testing/netns.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const PROGRAMS = ["apt-get", "setpriv", "slirp4netns", "unshare"];

/** Starts a script of this checkout as somebody does who is in no place. @param checkout where it is then, too */
function startOutside(env: Readonly<Record<string, string>>, command: readonly string[], checkout = REPOSITORY_ROOT) {
  const script = `root=/var/cache/cni-place/root-$(cksum <scripts/src/place/packages | cut -d " " -f 1)
    mkdir -p "$root"
    mount --bind / "$root"
    mkdir -p "$0"
    mount --bind . "$0"
    cd "$0"
    exec "$@"`;
  const { CNI_PLACE: _, ...outside } = process.env;
  return Bun.spawn(["unshare", "--mount", "sh", "-ec", script, checkout, ...command], {
    cwd: REPOSITORY_ROOT,
    env: { ...outside, ...env },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
}

/** A script, and the command that runs in the end. */
const SCRIPTS = [
  { name: "scripts/place", command: ["scripts/place", "bare", "tail", "-f", "/dev/null"], last: /^tail / },
  { name: "scripts/test", command: ["scripts/test", "spec/fuzz_test.ts"], last: / test \.\/spec\/fuzz_test\.ts / },
];
const IN_NO_PLACE = { ...SCRIPTS[1]!, name: "scripts/test without a place", env: { CNI_PLACE: "none" } };

for (const { name, command, last, env } of [...SCRIPTS.map((script) => ({ ...script, env: {} })), IN_NO_PLACE]) {
  testWith(PROGRAMS, `SIGTERM to ${name} ends all that it started, and its status says so`, async () => {
    // So many runs of a property take longer than this test. The variable reaches what runs in a place.
    const runs = `${10 ** 12 + process.pid}`;
    const marked = () => markedCommands(`FUZZ_RUNS=${runs}`);
    await using child = startOutside({ ...env, FUZZ_RUNS: runs }, command);
    await until(() => marked().some((line) => last.test(line)));
    child.kill("SIGTERM");
    await child.exited;
    expect(child.signalCode ?? `${child.exitCode}`).toMatch(/^(SIGTERM|143)$/);
    await until(() => marked().length === 0);
  });
}

testWith(PROGRAMS, "control groups that are made in a place end with it, or with the next one", async () => {
  const groupsOf = ({ pid }: { readonly pid: number }) =>
    Bun.spawnSync(["find", "/sys/fs/cgroup", "-path", `*/cni-place.${pid}*`]).stdout.toString();
  const make = "for group in /sys/fs/cgroup/*; do mkdir -p $group/made/below; done";
  await using ended = startOutside({}, ["scripts/place", "bare", "sh", "-c", make]);
  expect(await ended.exited).toBe(0);
  expect(groupsOf(ended)).toBe("");
  await using killed = startOutside({}, ["scripts/place", "bare", "sh", "-c", `${make}; exec tail -f /dev/null`]);
  await until(() => groupsOf(killed).includes("/made/below\n"));
  killed.kill("SIGKILL");
  await killed.exited;
  await using next = startOutside({}, ["scripts/place", "bare", "true"]);
  expect(await next.exited).toBe(0);
  expect(groupsOf(killed) + groupsOf(next)).toBe("");
});

for (const checkout of ["/root", "/root/cni/inner"]) {
  testWith(PROGRAMS, `a checkout at ${checkout} is the person's alone`, async () => {
    const before = readdirSync(REPOSITORY_ROOT).sort();
    const script = 'cmp "$0" scripts/place && ls -d "$HOME/.npm" "$HOME/go" && test ! -e "$HOME/scripts" && ls -A';
    // npm writes into the home of the person.
    const env = { HOME: tmpdir() };
    await using child = startOutside(env, ["scripts/place", "bare", "sh", "-c", script, "scripts/place"], checkout);
    const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()]);
    expect([await child.exited, stderr]).toEqual([0, ""]);
    expect(stdout.trim().split("\n").filter((line) => !line.startsWith("The place has"))).toEqual(
      ["/root/.npm", "/root/go", ...before],
    );
    expect(readdirSync(REPOSITORY_ROOT).sort()).toEqual(before);
  });
}

const directory = useDirectory("cni-place-");

testWith(
  [...PROGRAMS, "dnsmasq", ...existsSync("/dev/net/tun") ? [] : ["/dev/net/tun"]],
  "a resolver and a proxy that listen on the machine's loopback are those of a place",
  async () => {
    using machine = newNetns();
    runIp(machine, "link set lo up");
    using _resolver = await startDnsmasq(machine, "127.0.0.53", "--address=/archive.example/192.0.2.7");
    using proxy = machine.run(() =>
      Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: ({ url }) => new Response(`proxied ${url}`) })
    );
    const files = ["resolv.conf", "apt.conf"].map((name) => join(directory, name)) as [string, string];
    writeFileSync(files[0], "search example\nnameserver 127.0.0.53\noptions edns0\n");
    writeFileSync(files[1], `Acquire::http::Proxy "http://localhost:${proxy.port}";\n`);
    const inside = "getent ahostsv4 archive | head -n 1; apt-config dump --format %v%n Acquire::http::Proxy; " +
      "busybox wget -qO - http://other.example/";
    const script = `mount --bind ${files[0]} /etc/resolv.conf; exec scripts/place bare sh -ec '${inside}'`;
    const env = { http_proxy: `http://127.0.0.1:${proxy.port}`, APT_CONFIG: files[1] };
    await using child = startOutside(env, ["nsenter", `--net=${machine.path}`, "sh", "-ec", script]);
    const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()]);
    expect([await child.exited, stderr]).toEqual([0, ""]);
    expect(stdout.split("\n")).toEqual([
      expect.stringMatching(/^192\.0\.2\.7 +STREAM archive\.example$/),
      `http://10.0.2.2:${proxy.port}`,
      "proxied http://other.example/",
    ]);
  },
);

test("scripts/test says how it is used, and runs nothing then", () => {
  const run = (...words: string[]) => {
    const command = ["scripts/test", ...words];
    const { exitCode, stdout, stderr } = Bun.spawnSync(command, {
      cwd: REPOSITORY_ROOT,
      env: { ...process.env, CNI_PLACE: "none" },
      stderr: "pipe",
    });
    return [exitCode, stdout.toString(), stderr.toString()];
  };
  expect(run("--help")).toEqual([
    0,
    expect.stringMatching(/^Builds dist\/cni,(.|\n)* N passed, N failed, N skipped\n$/),
    "",
  ]);
  expect(run("--minutes", "ten")).toEqual([2, "", 'scripts/test: --minutes needs a number: got "ten"\n']);
});

test("whose language, time zone and umask it is makes no difference to a script", () => {
  const env = { ...process.env, LC_ALL: "C", LANGUAGE: "de", LANG: "C", TZ: "Asia/Kathmandu" };
  const script = 'umask 077; . scripts/setup; echo "${LC_ALL-}${LANGUAGE-}$LANG $TZ $(umask)"';
  const { stdout } = Bun.spawnSync(["sh", "-ec", script, "scripts/test"], { cwd: REPOSITORY_ROOT, env });
  expect(stdout.toString()).toBe("C.UTF-8 UTC 0022\n");
});
