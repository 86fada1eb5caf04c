/** How the words of `cni network` are understood, and what is printed. */
import { afterAll, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newCliSandboxes } from "../../../testing/cli.ts";
import { netnsTest, runIp } from "../../../testing/netns.ts";

const { root, cni, bench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

test.each([
  [["create", "web", "--driver", "brigde"], "--driver must be one of bridge, macvlan, ipvlan, ptp"],
  [["create", "web", "--subnet", "10.1.0.0"], '--subnet: Cannot parse CIDR "10.1.0.0"'],
  [["create", "web", "--subnet", "10.1.0.1/24"], "--subnet must be a network, such as 10.1.0.0/24"],
  [["create", "web", "--vlan", "4095"], "--vlan must be a number from 1 to 4094"],
  [["create", "web", "--option", "mtu"], '--option must be KEY=VALUE: got "mtu"'],
  [["create", "web", "-o", "mtuu=1"], 'driver "bridge" has no option "mtuu"; did you mean "mtu"?'],
  [["rm", "a", "--foce"], 'did you mean "--force"?'],
  [["rm", "a", "--verbose"], "--verbose says what --dry-run prints: give both"],
])("cni network %j is misuse: exit status 2", (argv, message) => {
  const { exitCode, stdout, stderr } = cni(["network", ...argv, "--conf-dir", join(root, "none")]);
  expect([exitCode, stdout]).toEqual([2, ""]);
  expect(stderr).toContain(message);
});

netnsTest("networks are printed for people and for programs", ({ host }) => {
  const { conf, cache } = bench(host);
  const network = (...argv: string[]) =>
    host.run(() => cni(["network", ...argv, "--conf-dir", conf, "--cache-dir", cache]));
  expect(network("create", "web")).toEqual({ exitCode: 0, stdout: `${conf}/10-web.conflist\n`, stderr: "" });
  expect(JSON.parse(network("create", "db", "--internal", "--json").stdout)).toMatchObject({
    ...{ name: "db", file: `${conf}/11-db.conflist`, configuration: { name: "db" } },
  });
  const taken = network("create", "web", "--json");
  expect([taken.exitCode, JSON.parse(taken.stdout).code]).toEqual([1, 7]);
  expect(network().stdout.split("\n").map((line) => line.split(/ {2,}/))).toEqual([
    ["NETWORK", "DRIVER", "SUBNETS", "USED", "FREE", "ATTACHED", "FILE"],
    ["db", "bridge", "10.64.1.0/24", "0", "253", "0", `${conf}/11-db.conflist`],
    ["default", "bridge", "10.63.0.0/16, fd5c:9e21:7b3f::/64", "0, 0", "65533, 2^64", "0", "(built in)"],
    ["web", "bridge", "10.64.0.0/24", "0", "253", "0", `${conf}/10-web.conflist`],
    [""],
  ]);
  // A /64 without its first address and the gateway.
  expect(JSON.parse(network("ls", "--json").stdout)).toContainEqual(
    expect.objectContaining({
      name: "default",
      pools: [expect.objectContaining({ free: 65533 }), expect.objectContaining({ free: String(2n ** 64n - 2n) })],
    }),
  );
  const shown = network("inspect", "web", "db");
  expect(shown.stdout).toContain("Addresses  10.64.0.0/24: 0 used, 253 free; 10.64.0.1 kept for the gateway\n");
  expect(shown.stdout).toContain(
    '\nbridge gets at ADD\n{\n  "cniVersion": "1.1.0",\n  "name": "db",\n  "type": "bridge",\n',
  );
  expect(network("rm", "default", "--force", "--dry-run").stderr).toContain(
    'The built-in network "default" itself stays: it is in no file',
  );
  const unknown = network("rm", "wbe", "db");
  expect([unknown.exitCode, unknown.stdout]).toEqual([1, ""]);
  expect(unknown.stderr).toContain('Cannot find network "wbe"');
  expect(unknown.stderr).toContain('did you mean "web"?');

  writeFileSync(
    join(conf, "12-other.conflist"),
    '{ "cniVersion": "1.0.0", "name": "other", "plugins": [{ "type": "x" }] }',
  );
  const asked = network("prune");
  expect([asked.exitCode, asked.stdout.match(/^\S+/gm)]).toEqual([2, ["UNUSED", "db", "web"]]);
  expect(asked.stderr).toContain("without a terminal, give --yes");
  const tried = network("prune", "--dry-run");
  expect([tried.exitCode, tried.stdout.match(/^\S+/gm)?.slice(0, 3)]).toEqual([0, ["UNUSED", "db", "web"]]);
  const { networks } = JSON.parse(network("prune", "--dry-run", "--json").stdout);
  expect(networks).toEqual([{ name: "db", file: `${conf}/11-db.conflist` }, {
    ...{ name: "web", file: `${conf}/10-web.conflist` },
  }]);
  expect(network("rm", "db").stdout).toBe(
    `db: removed what is left of network "db": rules, links, reserved addresses\n` +
      `db: removed the configuration "${conf}/11-db.conflist"\n`,
  );
  const outside = { cniVersion: "1.1.0", name: "out", plugins: [{ type: "loopback" }] };
  writeFileSync(join(root, "out.conflist"), JSON.stringify(outside));
  expect(network("rm", "./out.conflist").stdout).toContain(`out: removed the configuration "${root}/out.conflist"\n`);
  expect(JSON.parse(network("prune", "--yes", "--json").stdout)).toMatchObject([{ name: "web" }]);
  expect(readdirSync(conf)).toEqual(["12-other.conflist"]);
  expect(network("prune", "--yes").stderr).toBe("cni: There is no unused network\n");
});

netnsTest("a created network that another one's addresses are in gets a warning", ({ host }) => {
  const { conf } = bench(host);
  runIp(host, "link add up0 type veth peer name up1");
  const create = (name: string, parent: string) => {
    const words = `network create ${name} -d macvlan -o parent=${parent} --subnet 10.7.0.0/24 --conf-dir ${conf}`;
    return host.run(() => cni(words.split(" ")));
  };
  expect(create("a", "up0")).toMatchObject({ exitCode: 0, stderr: "" });
  const second = create("b", "up1");
  expect([second.exitCode, second.stdout]).toEqual([0, `${conf}/11-b.conflist\n`]);
  expect(second.stderr).toContain(
    `cni: ${conf}/11-b.conflist: plugins[0].ipam.ranges[0][0]: 10.7.0.1-10.7.0.254 overlaps`,
  );
});

netnsTest("create --dry-run prints the file that create then writes, and writes nothing", ({ host }) => {
  const { conf } = bench(host);
  const directory = join(conf, "net.d");
  const create = (name: string, ...words: string[]) =>
    host.run(() => cni(["network", "create", name, ...words, "--conf-dir", directory]));
  const first = create("web", "--dry-run");
  expect(first).toMatchObject({ exitCode: 0, stderr: `cni: would create "${directory}/10-web.conflist"\n` });
  expect(existsSync(directory)).toBe(false);
  create("db");
  const before = statSync(directory).mtimeMs;
  const [text, json] = [create("web", "--dry-run"), create("web", "--dry-run", "--json")];
  expect([readdirSync(directory), statSync(directory).mtimeMs]).toEqual([["10-db.conflist"], before]);
  expect(create("web").stdout).toBe(`${directory}/11-web.conflist\n`);
  const written = readFileSync(`${directory}/11-web.conflist`, "utf8");
  expect(text.stdout).toBe(written);
  expect(JSON.parse(json.stdout)).toEqual({
    ...{ name: "web", file: `${directory}/11-web.conflist`, configuration: JSON.parse(written) },
  });
  const taken = create("web", "--dry-run");
  expect([taken.exitCode, taken.stdout]).toEqual([1, ""]);
  expect(taken.stderr).toContain("there is one of this name");
});

netnsTest("rm prints what it removed before a failure", ({ host }) => {
  const { conf, cache } = bench(host);
  const run = (...argv: string[]) =>
    host.run(() => cni(["network", ...argv, "--conf-dir", conf, "--cache-dir", cache, "--plugin-dir", ":"]));
  const bad = join(conf, "20-bad.conflist");
  writeFileSync(bad, '{ "cniVersion": "1.1.0", "name": "bad", "plugins": [{ "type": "nosuch" }] }');
  run("create", "web");
  const text = run("rm", "web", "bad");
  expect([text.exitCode, text.stdout]).toEqual([
    1,
    `web: removed what is left of network "web": rules, links, reserved addresses\n` +
    `web: removed the configuration "${conf}/21-web.conflist"\n`,
  ]);
  expect(text.stderr).toContain('"nosuch"');
  run("create", "web");
  const json = run("rm", "web", "bad", "--json");
  expect(json.exitCode).toBe(1);
  expect(JSON.parse(json.stdout)).toMatchObject([
    { name: "web", steps: [{ action: "clean" }, { action: "remove-file" }] },
    { name: "bad", steps: [], failure: { msg: expect.stringContaining('"nosuch"') } },
  ]);
  expect(json.stderr).toContain('"nosuch"');
});

netnsTest("ls and inspect show what they can, and fail for a broken configuration", ({ host }) => {
  const { conf, cache } = bench(host);
  const run = (...argv: string[]) =>
    host.run(() => cni(["network", ...argv, "--conf-dir", conf, "--cache-dir", cache]));
  const write = (name: string, plugin: object) =>
    writeFileSync(join(conf, `${name}.conflist`), JSON.stringify({ cniVersion: "1.1.0", name, plugins: [plugin] }));
  write("good", { type: "loopback" });
  expect(run("ls")).toMatchObject({ exitCode: 0, stderr: "" });
  write("half", { type: "ptp", ipam: { type: "host-local", subnet: "wrong" } });
  const half = run("ls", "--json");
  expect([half.exitCode, JSON.parse(half.stdout).map(({ name }: { name: string }) => name)]).toEqual([
    1,
    ["default", "good", "half"],
  ]);
  expect(half.stderr).toContain('network "half": ');
  const inspected = run("inspect", "half", "good", "--json");
  expect([inspected.exitCode, JSON.parse(inspected.stdout).length]).toEqual([1, 2]);
  expect(run("inspect", "good").exitCode).toBe(0);
  rmSync(join(conf, "half.conflist"));
  writeFileSync(join(conf, "broken.conflist"), "{");
  const broken = run("ls");
  expect([broken.exitCode, broken.stdout.match(/^\w+/gm)]).toEqual([1, ["NETWORK", "default", "good"]]);
  expect(broken.stderr).toContain(`Ignoring configuration file "${conf}/broken.conflist"`);
  const missing = host.run(() => cni(["network", "ls", "--conf-dir", join(conf, "none"), "--cache-dir", cache]));
  expect(missing).toMatchObject({ exitCode: 0 });
});
