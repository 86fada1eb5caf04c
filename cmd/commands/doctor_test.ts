import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ifb } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { type CliSandbox, newCliSandboxes } from "../../testing/cli.ts";
import { type Namespaces, newNamespaces, runInNetns, runIp, runShellInNetns } from "../../testing/netns.ts";
import { shellWords } from "../../testing/shell_words.ts";

const sandboxes = newCliSandboxes();
let namespaces: Namespaces;
let sandbox: CliSandbox;
let source: string;

beforeAll(() => {
  namespaces = newNamespaces();
  sandbox = sandboxes.bench(namespaces.host);
  source = join(sandbox.conf, "10-web.conflist");
  const ipam = { type: "host-local", dataDir: join(sandboxes.root, "ipam"), subnet: "10.9.0.0/24" };
  const plugins = [
    { type: "bridge", bridge: "br9", isDefaultGateway: true, ipMasq: true, ipam },
    { type: "portmap", capabilities: { portMappings: true } },
  ];
  writeFileSync(source, JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins }));
  runShellInNetns(namespaces.host, "ip link set lo up; ip route add default dev lo");
  runShellInNetns(namespaces.container, "ip link set lo up");
  expect(sandbox.run(`add web ${namespaces.container.path} -p 8080:80`).exitCode).toBe(0);
});
afterAll(() => {
  namespaces[Symbol.dispose]();
  rmSync(sandboxes.root, { recursive: true });
});

const CLI_ENTRY = join(import.meta.dir, "../cni.ts");

const doctor = (argv: string) => {
  const words = ["doctor", ...argv.split(" ").filter((word) => word !== "")];
  const options = ["--conf-dir", sandbox.conf, "--cache-dir", sandbox.cache, "--plugin-dir", ":"];
  return namespaces.host.run(() => sandboxes.cni([...words, ...options]));
};

test("a port that nobody listens on is broken, with the command that mends it", () => {
  const { exitCode, stdout } = doctor("");
  const { path } = namespaces.container;
  expect(stdout.split("\n")[0]).toBe(`Network "web" (${source}), 1 container`);
  expect(stdout).toContain(
    `  ✗ nothing listens on 80/tcp in ${path}, which host port 8080/tcp leads to\n` +
      "    have the service listen on 0.0.0.0:80 or 10.9.0.2:80\n",
  );
  expect(stdout).toEndWith("\n1 broken, 0 warnings\n");
  expect(exitCode).toBe(1);
});

test("--json prints the same for programs, and the status is 0 without anything broken", () => {
  const { container } = namespaces;
  using _ = container.run<Disposable>(() => Bun.listen({ hostname: "0.0.0.0", port: 80, socket: { data() {} } }));
  const { exitCode, stdout } = doctor(`web ${container.path} --json --look-only`);
  const report = JSON.parse(stdout);
  expect(report).toMatchObject({ broken: 0, warnings: 0, networks: [{ network: "web", source }] });
  expect(report.networks[0].containers).toEqual([container.path]);
  expect(report.networks[0].findings).toContainEqual({
    check: "forwarding",
    severity: "ok",
    what: "the host forwards IPv4",
  });
  expect(exitCode).toBe(0);
});

test("--fix asks before each change, and --yes does not", () => {
  const forwarding = () => runInNetns(namespaces.host, "cat", "/proc/sys/net/ipv4/ip_forward").trim();
  runShellInNetns(namespaces.host, "echo 0 >/proc/sys/net/ipv4/ip_forward");
  const unanswered = doctor("web --fix");
  expect(unanswered.stderr).toContain("cni: net.ipv4.ip_forward is 0: the host forwards no IPv4 packets\n");
  expect(unanswered.stderr).toContain("--fix asks before it changes anything: without a terminal, give --yes");
  expect([forwarding(), unanswered.exitCode]).toEqual(["0", 2]);
  const done = doctor("web --fix --yes");
  expect(done.stderr).toContain("cni: done: sysctl -w net.ipv4.ip_forward=1\n");
  expect(done.stdout).toContain("✓ the host forwards IPv4\n");
  expect(forwarding()).toBe("1");
  expect(JSON.parse(doctor("web --fix --yes --json").stdout).repairs).toEqual([]);
  runShellInNetns(namespaces.host, "echo 0 >/proc/sys/net/ipv4/ip_forward");
  expect(JSON.parse(doctor("web --fix --yes --json").stdout).repairs).toMatchObject([
    { finding: { check: "forwarding", severity: "broken", repair: { kind: "sysctl" } }, outcome: "done" },
  ]);
  expect(JSON.parse(doctor("web --json").stdout).repairs).toBeUndefined();
});

test("--fix --yes leaves what can cut off a remote login, and says so", () => {
  const { host } = namespaces;
  const address = () => runInNetns(host, "ip", "-br", "-4", "addr", "show", "br9");
  // Without the gateway's address, the host is in its own network again.
  runIp(
    host,
    "addr del 10.9.0.1/24 dev br9",
    "link add up9 up type veth peer name far9",
    "addr add 10.9.0.5/24 dev up9",
  );
  const { stdout, stderr } = doctor("web --fix --yes --look-only");
  expect(stderr).toContain(
    "cni: declined: ip addr add 10.9.0.1/24 dev br9: it can cut off a remote login\n",
  );
  expect(stdout).toContain(
    "    careful: this can cut off a remote login\n    -> ip addr add 10.9.0.1/24 dev br9\n",
  );
  expect(address()).not.toContain("10.9.0.1");
  const { networks: [{ findings }] } = JSON.parse(doctor("web --json --look-only").stdout);
  expect(findings.filter(({ mayDisconnect }: { mayDisconnect?: true }) => mayDisconnect)).toMatchObject([
    { mend: "ip addr add 10.9.0.1/24 dev br9" },
  ]);
  runIp(host, "link del up9", "addr add 10.9.0.1/24 dev br9");
});

test.each([["n", "0"], ["y", "1"]])("on a terminal, --fix takes %s for an answer", (answer, forwarding) => {
  runShellInNetns(namespaces.host, "echo 0 >/proc/sys/net/ipv4/ip_forward");
  const options = `--conf-dir ${sandbox.conf} --cache-dir ${sandbox.cache} --plugin-dir :`;
  const command = `${shellWords(process.execPath, CLI_ENTRY)} doctor web --fix --look-only ${options}`;
  const { stdout } = namespaces.host.run(() =>
    Bun.spawnSync(["script", "-qec", command, "/dev/null"], { stdin: Buffer.from(`${answer}\n`) })
  );
  expect(stdout.toString()).toContain('Run "sysctl -w net.ipv4.ip_forward=1"? [y/N]');
  expect(runInNetns(namespaces.host, "cat", "/proc/sys/net/ipv4/ip_forward").trim()).toBe(forwarding);
  runShellInNetns(namespaces.host, "echo 1 >/proc/sys/net/ipv4/ip_forward");
});

test("--bundle writes a file that only its owner reads", () => {
  const path = join(sandboxes.root, "bundle.json");
  const mac = "0a:00:00:00:00:01";
  runIp(namespaces.host, `neigh replace 10.9.0.77 lladdr ${mac} dev br9`);
  expect(doctor(`web --bundle ${path} --look-only`).stderr).toContain(`cni: Wrote "${path}"`);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const again = doctor(`web --bundle ${path} --look-only`);
  expect([again.exitCode, again.stderr]).toEqual([
    1,
    `cni: Cannot write "${path}": it exists already, so choose another name\n`,
  ]);
  const bundle = JSON.parse(readFileSync(path, "utf8"));
  expect(bundle.networks).toEqual([{ source, text: readFileSync(source, "utf8") }]);
  expect(bundle.report.networks[0].network).toBe("web");
  expect(bundle.host.links.map(({ name }: { name: string }) => name)).toContain("br9");
  expect(bundle.containers[namespaces.container.path].addresses).toContainEqual(
    expect.objectContaining({ address: "10.9.0.2/24" }),
  );
  expect(bundle.host.neighbours).toContainEqual(expect.objectContaining({ address: "10.9.0.77", mac }));
  expect(bundle.host.sysctls["net/ipv4/ip_forward"]).toBe("1");
  expect(bundle.ruleset.map(({ table }: { table: string }) => table)).toContain("cni");
  expect(bundle.elements.masquerade4).toEqual([expect.objectContaining({ key: "0a090002" })]);
});

test("files that are no network are named, and the others examined", () => {
  const unusable = join(sandbox.conf, "20-broken.conflist");
  const unknown = join(sandbox.conf, "30-unknown.conflist");
  writeFileSync(unusable, '{ "name": ');
  writeFileSync(unknown, '{ "name": "lan", "plugins": [{ "type": "brdge" }] }');
  const { stdout, exitCode } = doctor("--look-only");
  expect(stdout).toContain(`Network "web" (${source}), 1 container\n`);
  expect(stdout).toContain(`File ${unusable}\n  ✗ Cannot parse ${unusable}:1:11`);
  expect(stdout).toContain(`correct "type" in ${unknown}, or install the plugin; did you mean "bridge"?`);
  expect(exitCode).toBe(1);
  const options = ["--look-only", "--conf-dir", sandbox.conf, "--cache-dir", sandbox.cache];
  const withDirectory = ["doctor", ...options, "--plugin-dir", sandboxes.root];
  const lines = namespaces.host.run(() => sandboxes.cni(withDirectory)).stdout.split("\n");
  expect(lines).toContain(
    `    correct "type" in ${unknown}, or install the plugin; looked in ${sandboxes.root}; did you mean "bridge"?`,
  );
  for (const path of [unusable, unknown]) rmSync(path);
});

test("mistakes in the configuration are warnings", () => {
  const misspelt = join(sandbox.conf, "40-misspelt.conflist");
  const text = '{ "cniVersion": "1.1.0", "name": "lan", "plugins": [{ "type": "loopback", "mttu": 1 }] }';
  writeFileSync(misspelt, text);
  const { stdout, exitCode } = doctor("lan --look-only");
  expect(stdout).toContain(`  ! ${misspelt}:1:${text.indexOf('"mttu"') + 1} `);
  expect(exitCode).toBe(0);
  rmSync(misspelt);
});

test.each([
  [{ type: "host-local", subnet: "10.1.0.0.0/16" }, "must be a CIDR"],
  [{ type: "host-locl", subnet: "10.1.0.0/16" }, 'Cannot run plugin "host-locl"'],
])("what makes the configuration unusable is broken, and said once: %j", (ipam, message) => {
  const unusable = join(sandbox.conf, "40-unusable.conflist");
  writeFileSync(unusable, JSON.stringify({ cniVersion: "1.1.0", name: "lan", plugins: [{ type: "bridge", ipam }] }));
  const { stdout, exitCode } = doctor("lan --look-only");
  rmSync(unusable);
  expect(stdout.split("\n").filter((line) => line.includes(message))).toEqual([expect.stringMatching(/^ {2}✗ /)]);
  expect(stdout).toEndWith("\n1 broken, 0 warnings\n");
  expect(exitCode).toBe(1);
});

test.each([
  ["wbe", 1, 'did you mean "web"?'],
  ["web nowhere", 1, 'Namespace "/run/netns/nowhere" is not attached to network "web"'],
  ["--yes", 2, "--yes belongs to --fix"],
  ["--fix --json", 2, "--fix asks: with --json, add --yes"],
])("doctor %s ends with %i", (argv, status, message) => {
  const { exitCode, stdout, stderr } = doctor(argv);
  expect(stderr).toContain(message);
  expect([exitCode, stdout === ""]).toEqual([status, !argv.includes("--json")]);
});

test("names that others choose do not control the terminal", () => {
  const { host } = namespaces;
  const name = "a\u001b[31m\u009bm";
  link.add(host.route, { name, info: ifb({}) });
  runIp(host, `addr add 192.0.2.9/32 dev ${name}`);
  const [text, json] = ["--look-only", "--look-only --json"].map((argv) => doctor(argv).stdout) as [string, string];
  link.remove(host.route, name);
  expect(text).toContain('! "a?[31m?m" of the host is down, although it has 192.0.2.9/32\n');
  expect([text, json].map((output) => output.match(/[^\P{Cc}\n]/gu))).toEqual([null, null]);
  const [{ findings }] = JSON.parse(json).networks;
  expect(findings).toContainEqual(expect.objectContaining({ what: expect.stringContaining(`"${name}" of the host`) }));
});

test("without any network, the built-in one is examined", () => {
  const empty = join(sandboxes.root, "empty");
  mkdirSync(empty);
  const argv = ["doctor", "--look-only", "--conf-dir", empty, "--cache-dir", empty, "--plugin-dir", ":"];
  const { stdout } = namespaces.host.run(() => sandboxes.cni(argv));
  expect(stdout).toContain('Network "default" (the built-in default network), 0 containers\n');
});
