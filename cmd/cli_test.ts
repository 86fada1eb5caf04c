import { afterAll, expect, test } from "bun:test";
import { readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { netnsTest, runInNetns, runShellInNetns } from "../testing/netns.ts";
import { containerIdOfNetns } from "../runtime/container_id.ts";
import { newCliSandboxes } from "../testing/cli.ts";
import { shellWords } from "../testing/shell_words.ts";

const { root, cni, bench } = newCliSandboxes();
const CLI_ENTRY = join(import.meta.dir, "cni.ts");
afterAll(() => rmSync(root, { recursive: true }));

const one = (...plugins: object[]) => JSON.stringify({ cniVersion: "1.1.0", name: "x", plugins });

netnsTest("cni run attaches, checks and detaches", ({ host, container }) => {
  const { run, network, entries } = bench(host);
  network("web");
  const added = run(`add web ${container.path}`);
  expect([added.exitCode, added.stderr]).toEqual([0, ""]);
  const result = JSON.parse(added.stdout);
  expect(result.ips).toMatchObject([{ address: "10.9.0.2/24" }]);
  expect(added.stdout).toEndWith("}\n");
  expect(runInNetns(container, "ip", "-o", "-4", "addr", "show", "dev", "eth0")).toContain(" 10.9.0.2/24 ");
  expect(entries()).toEqual([`web-${containerIdOfNetns(container.path)}-eth0`]);
  expect(run(`check web ${container.path}`)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  runInNetns(container, "ip", "link", "set", "eth0", "down");
  runInNetns(container, "ip", "addr", "flush", "dev", "eth0");
  expect(run(`check web ${container.path}`)).toMatchObject({
    exitCode: 1,
    stdout: "",
    stderr: expect.stringContaining('plugin "bridge" (CHECK)'),
  });
  expect(run(`del web ${container.path}`)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expect(runInNetns(container, "ip", "-o", "link")).not.toContain("eth0");
  expect(entries()).toEqual([]);
  expect(run(`del web ${container.path}`)).toMatchObject({
    exitCode: 0,
    stdout: "",
    stderr: expect.stringMatching(/^cni: .* is not remembered, .*\n$/),
  });
});

netnsTest(
  "cni run add refuses a second time, and del works when the configuration is gone and broken",
  ({ host, container }) => {
    const { run, network, conf, entries } = bench(host);
    network("web");
    expect(run(`add web ${container.path}`).exitCode).toBe(0);
    const again = run(`add web ${container.path}`);
    expect([again.exitCode, again.stdout]).toEqual([1, ""]);
    expect(again.stderr).toContain("attached already");
    expect(runInNetns(container, "ip", "-o", "link")).toContain("eth0");
    writeFileSync(join(conf, "web.conflist"), '{"name":"web","plugins":5}');
    const removed = run(`del web ${container.path}`);
    expect(removed.exitCode).toBe(0);
    expect(removed.stderr).toContain("web.conflist");
    expect(removed.stderr).toContain("was attached with");
    expect(entries()).toEqual([]);
    expect(runInNetns(container, "ip", "-o", "link")).not.toContain("eth0");
  },
);

netnsTest("the advice after a refused add detaches that attachment when it is pasted", ({ host, container }) => {
  const { run, network, conf, entries } = bench(host);
  network("web");
  // A name that means something else to a shell.
  const add = `add web ${container.path} --container-id c1 --ifname a;b`;
  expect(run(add).exitCode).toBe(0);
  const advice = /remove it first: cni (run del .*)/.exec(run(add).stderr)?.[1];
  const pasted = `${shellWords(process.execPath, CLI_ENTRY)} ${advice} --conf-dir ${conf}`;
  expect(runShellInNetns(host, pasted)).toBe("");
  expect(entries()).toEqual([]);
  expect(runInNetns(container, "ip", "-o", "link")).not.toContain("a;b");
});

netnsTest("cni run del finds the namespace by the container id", ({ host, container }) => {
  const { run, network } = bench(host);
  network("web");
  expect(run(`add web ${container.path} --container-id c1`).exitCode).toBe(0);
  expect(run("del web --container-id c1")).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expect(runInNetns(container, "ip", "-o", "link")).not.toContain("eth0");
});

netnsTest("cni run add does not touch an interface that is there already", ({ host, container }) => {
  const { run, network } = bench(host);
  network("web");
  runInNetns(container, "ip", "link", "add", "eth0", "type", "bridge");
  const { exitCode, stderr } = run(`add web ${container.path}`);
  expect(exitCode).toBe(1);
  expect(stderr).toContain('has an interface "eth0" already');
  expect(runInNetns(container, "ip", "-o", "link")).toContain("eth0");
  expect(run(`add web ${container.path} --ifname net1`).exitCode).toBe(0);
});

netnsTest("cni run add asks for an address and a hardware address also without capabilities", ({ host, container }) => {
  const { run, network } = bench(host);
  network("web");
  const { stdout } = run(`add web ${container.path} --ip 10.9.0.77 --mac 0a:58:0a:09:00:4d`);
  expect(JSON.parse(stdout).ips).toMatchObject([{ address: "10.9.0.77/24" }]);
  expect(runInNetns(container, "ip", "-o", "link", "show", "dev", "eth0")).toContain("0a:58:0a:09:00:4d");
});

netnsTest("cni run gc detaches what is not valid", ({ host, container }) => {
  const { run, network, entries } = bench(host);
  network("web");
  for (const id of ["c1", "c2"]) {
    expect(run(`add web ${container.path} --container-id ${id} --ifname ${id}`).exitCode).toBe(0);
  }
  expect(run("gc web --valid c2/c2")).toEqual({
    exitCode: 0,
    stdout: "",
    stderr: 'cni: Removed "c1" of container "c1" on network "web"\n',
  });
  expect(entries()).toEqual(["web-c2-c2"]);
  expect(runInNetns(container, "ip", "-o", "link")).toMatch(/\bc2@/);
  expect(runInNetns(container, "ip", "-o", "link")).not.toMatch(/\bc1@/);
  expect(run("gc web --all").exitCode).toBe(0);
  expect(entries()).toEqual([]);
});

netnsTest("cni run derive prints one document of requests, and does nothing", ({ host, container }) => {
  const { run, conf, network, entries } = bench(host);
  writeFileSync(
    join(conf, "x.conflist"),
    `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"nosuch","n":12345678901234567890},
      {"type":"y","capabilities":{"portMappings":true}}]}`,
  );
  const derived = run(`derive x ${container.path} -p 80:81`);
  expect([derived.exitCode, derived.stderr]).toEqual([0, ""]);
  expect(derived.stdout).toContain('"n": 12345678901234567890\n');
  expect(JSON.parse(derived.stdout)).toEqual([
    { type: "nosuch", request: { cniVersion: "1.0.0", name: "x", type: "nosuch", n: 12345678901234567890 } },
    {
      type: "y",
      request: {
        cniVersion: "1.0.0",
        name: "x",
        type: "y",
        runtimeConfig: { portMappings: [{ hostPort: 80, containerPort: 81, protocol: "tcp" }] },
      },
    },
  ]);
  expect(entries).toThrow("ENOENT");
  expect(JSON.parse(run("derive x --command STATUS").stdout)).toEqual([]);
  network("web");
  const result = JSON.parse(run(`add web ${container.path}`).stdout);
  for (const command of ["CHECK", "DEL"]) {
    const [{ type, request }] = JSON.parse(run(`derive web ${container.path} --command ${command}`).stdout);
    expect([type, request.prevResult]).toEqual(["bridge", result]);
  }
  const ids = [containerIdOfNetns(container.path), "c2"];
  const gc = `derive web --command GC --ignore-unknown --valid ${ids[0]} --valid c2/eth0`;
  const [{ request }] = JSON.parse(run(gc).stdout);
  expect(request["cni.dev/valid-attachments"]).toEqual(ids.map((containerID) => ({ containerID, ifname: "eth0" })));
  expect(runInNetns(container, "ip", "-o", "link")).toContain("eth0");
});

netnsTest("cni run works where a script says cnitool", ({ host, container }) => {
  const { conf, bin, plugin } = bench(host);
  writeFileSync(
    join(conf, "10-net.conflist"),
    `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"rec","capabilities":{"aliases":true}}]}`,
  );
  plugin(
    "rec",
    `{ echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS $CNI_PATH"; cat; echo; } >>"$RECORD"
     [ "$CNI_COMMAND" = "$FAIL" ] && { echo '{"code":7,"msg":"oops","details":"why"}'; exit 1; }
     [ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24"}]}'
     exit 0`,
  );
  // /var/lib/cni, which cnitool has no option for, is a directory of the test's.
  const script = (fail = "") => `
    export NETCONFPATH=${conf} CNI_PATH=${bin} CNI_ARGS='K=V;L=W' CAP_ARGS='{"aliases":["a"]}' CNI_IFNAME=net1 FAIL=${fail}
    mount -t tmpfs tmpfs /var/lib; cd ${root}
    cnitool add net x/../ns0 extra; status=$?; echo; echo "add $status"
    cnitool check net ${root}/ns0; echo "check $?"
    CNI_IFNAME= cnitool add net ns0 -i net2 >/dev/null; echo "add $?"
    cnitool status net ns0; echo "status $?"
    cnitool gc net ns0 --all; echo "gc $?"
    cnitool del net ./ns0; echo "del $?"
    ls /var/lib/cni/results`;
  symlinkSync(container.path, join(root, "ns0"));
  const runScript = (fail?: string) => {
    const record = join(root, `record${fail}`);
    const text = script(fail).replace(/cnitool/g, `${shellWords(process.execPath, CLI_ENTRY)} run`);
    const { stdout, stderr } = host.run(() =>
      Bun.spawnSync(["unshare", "-m", "sh", "-c", text], { env: { PATH: process.env.PATH!, RECORD: record } })
    );
    return { stdout: stdout.toString(), stderr: stderr.toString(), record: readFileSync(record, "utf8") };
  };
  const { stdout, stderr, record } = runScript();
  const result = JSON.stringify({ cniVersion: "1.1.0", ips: [{ address: "10.0.0.2/24" }] }, null, 4);
  expect(stdout).toBe(`${result}\n\nadd 0\ncheck 0\nadd 0\nstatus 0\ngc 0\ndel 0\n`);
  const id = containerIdOfNetns(`${root}/ns0`);
  const subject = (ifname: string) => `"${ifname}" of container "${id}" on network "net"`;
  expect(stderr.split("\n")).toEqual([
    'cni: Ignoring what follows the arguments: "extra"',
    `cni: Removed ${subject("net1")}`,
    `cni: Removed ${subject("net2")}`,
    `cni: ${subject("net1")} in "${root}/ns0" is not remembered, but the plugins were called anyway`,
    "",
  ]);
  const calls = record.split("\n").filter((line) => /^[A-Z]/.test(line));
  const call = (command: string, ifname: string) => `${command} ${id} ${root}/ns0 ${ifname} K=V;L=W ${bin}`;
  expect(calls).toEqual([
    call("ADD", "net1"),
    call("CHECK", "net1"),
    call("ADD", "net2"),
    `STATUS     ${bin}`,
    call("DEL", "net1"),
    call("DEL", "net2"),
    `GC     ${bin}`,
    call("DEL", "net1"),
  ]);
  expect(JSON.parse(record.split("\n")[1]!).runtimeConfig).toEqual({ aliases: ["a"] });

  const failed = runScript("ADD");
  expect(failed.stdout).toBe("\nadd 1\ncheck 1\nadd 1\nstatus 0\ngc 0\ndel 0\n");
  expect(failed.stderr).toContain('cni: plugin "rec" (ADD): oops\n     why; its program is "');
});

netnsTest("cni run status tells whether an ADD could be served", ({ host }) => {
  const { run, network, conf } = bench(host);
  network("web");
  expect(run("status web")).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  writeFileSync(join(conf, "old.conf"), '{"cniVersion":"0.4.0","name":"old","type":"bridge"}');
  expect(run("status old")).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  const stdin = JSON.stringify({ cniVersion: "0.3.1", name: "x", plugins: [{ type: "portmap" }, { type: "bridge" }] });
  expect(run("status -", { stdin })).toMatchObject({
    exitCode: 1,
    stdout: "",
    stderr: expect.stringContaining('"portmap" changes what an earlier plugin of the list set up'),
  });
});

netnsTest("cni run status names keys that nobody reads, and add where it fails", ({ host, container }) => {
  const { run } = bench(host);
  const stdin = one({ type: "macvlan", mastr: "lo", "master ": "lo" });
  const { exitCode, stderr } = run("status -", { stdin });
  expect([exitCode, stderr.split("\n").slice(0, 2)]).toEqual([1, [
    expect.stringMatching(
      /^cni: network "\S+": \S*mastr is not read; did you mean "master"\? \(standard input:\d+:\d+\)$/,
    ),
    expect.stringContaining('["master "] is not read; did you mean "master"?'),
  ]]);
  expect(run(`add - ${container.path}`, { stdin })).toMatchObject({
    exitCode: 1,
    stderr: expect.stringContaining("mastr is"),
  });
});

netnsTest("cni run add says once what nobody reads, and nothing of notes", ({ host, container }) => {
  const { run, conf } = bench(host);
  const ipam = { type: "static", addresses: [{ address: "10.9.0.5/24", comment: "" }], _comment: "" };
  const web = { cniVersion: "1.0.0", name: "web", "x-team": "", $schema: "", owner: "ops" };
  const bridge = JSON.stringify({ type: "bridge", bridge: "br9", isGatway: true, "x-note": {}, ipam });
  const text = `${JSON.stringify(web).slice(0, -1)}, "plugins": [${
    bridge.replace("{", '{"mtu": 1400, "mtu": 1300,')
  }]}`;
  writeFileSync(join(conf, "1.conflist"), text);
  writeFileSync(join(conf, "2.conflist"), text);
  const { exitCode, stdout, stderr } = run(`add web ${container.path} --cap-args {"ips":["10.9.0.7/24"],"mac":""}`);
  expect([exitCode, JSON.parse(stdout).ips[0].address]).toEqual([0, "10.9.0.5/24"]);
  const at = (text: string) => text.replaceAll(`${conf}/`, "").replace(/:1:[0-9]+\)/, ":1:1)");
  expect(stderr.trimEnd().split("\n").map(at)).toEqual([
    'cni: network "web" is in two files: "1.conflist" is used, and "2.conflist" is not',
    'cni: network "web": plugins[0].mtu is there more than once, and the last one counts (1.conflist:1:1)',
    'cni: network "web": owner is not read (1.conflist:1:1)',
    'cni: network "web": plugins[0].isGatway is not read; did you mean "isGateway"? (1.conflist:1:1)',
    'cni: network "web": plugins[0].ipam.addresses[0].comment is not read (1.conflist:1:1)',
    'cni: network "web": no plugin has capability "ips", so its arguments are not read',
    'cni: network "web": no plugin has capability "mac", so its arguments are not read',
  ]);
});

netnsTest("cni run status says what is in files twice; commands for what is attached do not", ({ host, container }) => {
  const { run, conf, plugin } = bench(host);
  plugin("quiet", `cat >/dev/null; echo '{"cniVersion":"1.1.0"}'`);
  const text = '{"cniVersion":"1.1.0","name":"web","plugins":[{"type":"quiet","mtu":1,"mtu":2}]}';
  for (const name of ["1", "2"]) writeFileSync(join(conf, `${name}.conflist`), text);
  const said = (words: string) => run(words).stderr.split("\n").filter((line) => /two files|more than once/.test(line));
  expect(said("status web")).toHaveLength(2);
  expect(said(`add web ${container.path}`)).toHaveLength(2);
  for (
    const words of ["check web PATH", "derive web PATH", "list web", "restore web", "gc web --all", "del web PATH"]
  ) {
    expect([words, said(words.replace("PATH", container.path))]).toEqual([words, []]);
  }
});

netnsTest("cni run add says nothing of the keys that a program may read", ({ host, container }) => {
  const { run, plugin } = bench(host);
  plugin("bridge", 'cat >/dev/null; echo "{\\"cniVersion\\":\\"1.1.0\\"}"');
  const stdin = one({ type: "bridge", color: 1, isGatway: true }, { type: "bridge", ipam: { type: "other", a: 1 } });
  const { exitCode, stderr } = run(`add - ${container.path}`, { stdin });
  expect([exitCode, stderr.replace(/:[0-9]+\)/, ":1)")]).toEqual([
    0,
    'cni: network "x": plugins[0].isGatway is not read; did you mean "isGateway"? (standard input:1:1)\n',
  ]);
});

netnsTest(
  "cni run prefers a program of the administrator, and passes what it says on stderr",
  ({ host, container }) => {
    const { run, plugin } = bench(host);
    plugin(
      "loopback",
      'echo "here: $CNI_COMMAND $CNI_IFNAME" >&2; cat >/dev/null; echo "{\\"cniVersion\\":\\"1.1.0\\"}"',
    );
    const { exitCode, stdout, stderr } = run(`add - ${container.path}`, { stdin: one({ type: "loopback" }) });
    expect([exitCode, JSON.parse(stdout), stderr]).toEqual([0, { cniVersion: "1.1.0" }, "here: ADD eth0\n"]);
  },
);

netnsTest("cni run takes the built-in plugin where the program is this one", ({ host, container }) => {
  const { run, bin } = bench(host);
  symlinkSync(process.execPath, join(bin, "loopback"));
  const { exitCode, stdout } = run(`add - ${container.path} -i lo`, { stdin: one({ type: "loopback" }) });
  expect([exitCode, JSON.parse(stdout).interfaces[0].name]).toEqual([0, "lo"]);
});

netnsTest("cni run ends a program after its time, undoes and says so", ({ host, container }) => {
  const { run, plugin, entries } = bench(host);
  plugin("slow", '[ "$CNI_COMMAND" = ADD ] && exec sleep 60; cat >/dev/null');
  // The DEL that undoes must end within this time, however busy the machine is.
  const { exitCode, stdout, stderr } = run(`add - ${container.path} --timeout 3s --json`, {
    stdin: one({ type: "slow" }),
  });
  expect([exitCode, JSON.parse(stdout).code]).toEqual([1, 11]);
  expect(stderr).toContain('plugin "slow" (ADD): ');
  expect(entries()).toEqual([]);
});

netnsTest("cni run names the directories when there is no such plugin, and leaves nothing", ({ host, container }) => {
  const { run, bin, entries } = bench(host);
  const { exitCode, stdout, stderr } = run(`add - ${container.path}`, { stdin: one({ type: "nosuch" }) });
  expect([exitCode, stdout]).toEqual([1, ""]);
  expect(stderr).toContain(`looked in ${bin}`);
  expect(entries()).toEqual([]);
});

netnsTest("cni run says where a configuration is wrong", ({ host, container }) => {
  const { run, conf } = bench(host);
  writeFileSync(
    join(conf, "web.conflist"),
    '{\n  "name": "web",\n  // why\n  "plugins": [{ "type": "bridge" }, {}]\n}',
  );
  const { exitCode, stdout, stderr } = run(`add web ${container.path}`);
  expect([exitCode, stdout]).toEqual([1, ""]);
  expect(stderr).toBe(
    `cni: Cannot use network "web": plugins[1].type must be a non-empty string: got nothing\n     ${conf}/web.conflist:4:37\n`,
  );
  writeFileSync(join(conf, "web.conflist"), '{\n  "name": "web"\n  "plugins": []\n}');
  expect(run(`add ${conf}/web.conflist ${container.path}`).stderr).toStartWith(
    `cni: Cannot parse ${conf}/web.conflist:3:3`,
  );
});

netnsTest(
  "cni run add leaves nothing of a network that cannot be used, so that it can be corrected",
  ({ host, container }) => {
    const { run, conf, entries } = bench(host);
    const file = join(conf, "web.conflist");
    writeFileSync(
      file,
      JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "bridge", mtu: "12", vlan: -1 }] }),
    );
    expect(run(`add web ${container.path}`).exitCode).toBe(1);
    expect(entries()).toEqual([]);
    writeFileSync(
      file,
      JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "bridge", bridge: "br9", mtu: 1200 }] }),
    );
    expect(run(`add web ${container.path}`).exitCode).toBe(0);
  },
);

netnsTest("cni run says where a plugin's part of a configuration is wrong", ({ host, container }) => {
  const { run, conf } = bench(host);
  const file = join(conf, "web.jsonc");
  const messageOf = (text: string) => {
    writeFileSync(file, text);
    const { exitCode, stdout, stderr } = run(`add web ${container.path}`);
    expect([exitCode, stdout]).toEqual([1, ""]);
    return stderr;
  };
  expect(messageOf('{ "name": "web",\n "plugins": [{ "type": "bridge", "mtu": "12" }] }')).toEndWith(
    `cni: plugin "bridge" (ADD): Cannot use network "web": mtu must be a whole number from 0 to 65535: got "12"\n` +
      `     ${file}:2:41, plugins[0].mtu\n`,
  );
  // One that it hands on, in a file with a single plugin.
  expect(messageOf('{ "name": "web", "type": "bridge",\n "ipam": { "type": "host-local", "gateway": 1 } }')).toContain(
    `\n     ${file}:2:45, ipam.gateway\n`,
  );
  expect(messageOf('{ "name": "web", "type": "bridge", "ipam": { "type": "host-local" } }')).toContain(
    `\n     ${file}:1:44, ipam.ranges\n`,
  );
});

netnsTest("cni run add names all that is wrong with its arguments", ({ host, container }) => {
  const { run } = bench(host);
  const argv = `add - ${container.path} --container-id ../x --ifname a/b`;
  const { exitCode, stderr } = run(argv, { stdin: one({ type: "loopback" }) });
  expect(exitCode).toBe(1);
  expect(stderr).toStartWith('cni: Cannot attach to network "x": container id "../x" must start');
  expect(stderr).toContain('; interface name "a/b" has a /');
});

netnsTest("cni run lets no plugin break the line or steer the terminal", ({ host, container }) => {
  const { run, plugin } = bench(host);
  plugin(
    "rude",
    'cat >/dev/null; [ "$CNI_COMMAND" = ADD ] || exit 0; printf \'{"code":100,"msg":"one\\\\n\\\\u001b[2Jtwo\\\\u202e"}\'; exit 1',
  );
  const { stderr } = run(`add - ${container.path}`, { stdin: one({ type: "rude" }) });
  expect(stderr).toMatch(/^cni: plugin "rude" \(ADD\): one; \\x1b\[2Jtwo\\u202e\n {5}its program is ".*\/rude"\n$/);
});

netnsTest("cni run prints details that are too long for a line in several", ({ host, container }) => {
  const { run, plugin } = bench(host);
  const details = (count: number) =>
    Array.from({ length: count }, (_, i) => `Cannot enter network namespace "/run/netns/c${i}"`);
  const linesOf = (count: number) => {
    const error = JSON.stringify({ code: 100, msg: "oops", details: details(count).join("; ") });
    plugin("talks", `cat >/dev/null; [ "$CNI_COMMAND" = ADD ] || exit 0; echo '${error}'; exit 1`);
    return run(`add - ${container.path}`, { stdin: one({ type: "talks" }) }).stderr.split("\n");
  };
  expect(linesOf(5).slice(0, 6)).toEqual([
    'cni: plugin "talks" (ADD): oops',
    ...details(5).map((line) => `     ${line}`),
  ]);
  // With the one that says where the program is.
  expect(linesOf(1000).slice(20)).toEqual([
    '     Cannot enter network namespace "/run/netns/c19"',
    "     and 981 more: --json prints all",
    "",
  ]);
});

netnsTest("cni run also understands ls, rm and delete", ({ host, container }) => {
  const { run, network, entries } = bench(host);
  network("web");
  for (const word of ["rm", "delete"]) {
    expect(run(`add web ${container.path}`).exitCode).toBe(0);
    expect(run("ls").stdout).toMatch(/^web .* attached /m);
    expect(run(`${word} web ${container.path}`)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
    expect(entries()).toEqual([]);
  }
});

test("what cannot be written to standard output is a failure", () => {
  const full = ["sh", "-c", 'exec "$@" >/dev/full', "sh"];
  const message = "Cannot write to standard output: No space left on device (ENOSPC)";
  const cli = cni(["--version"], { wrapper: full });
  expect([cli.exitCode, cli.stderr]).toEqual([1, `cni: ${message}\n`]);
  const plugin = cni(["plugin", "loopback"], { wrapper: full, env: { CNI_COMMAND: "VERSION" } });
  expect([plugin.exitCode, plugin.stderr]).toEqual([1, `cni: ${message}\n`]);
});

netnsTest("cni run add refuses its own namespace before anything is remembered", ({ host }) => {
  const { run, network, entries } = bench(host);
  network("web");
  const { exitCode, stdout } = run("add web /proc/self/ns/net --json");
  expect([exitCode, JSON.parse(stdout).code]).toEqual([1, 8]);
  expect(entries).toThrow("ENOENT");
});

netnsTest("cni run says once that an IPAM plugin is missing, and leaves nothing", ({ host, container }) => {
  const { run, entries } = bench(host);
  const network = { cniVersion: "1.0.0", name: "x", plugins: [{ type: "bridge", ipam: { type: "nosuch" } }] };
  const { exitCode, stderr } = run(`add - ${container.path}`, { stdin: JSON.stringify(network) });
  expect(exitCode).toBe(1);
  expect(stderr.match(/nosuch/g)).toEqual(["nosuch"]);
  expect(stderr).not.toContain("undoing");
  expect(entries()).toEqual([]);
});

netnsTest("cni run says that it lacks a permission, not that there is no namespace", ({ host, container }) => {
  const { run, network } = bench(host);
  network("web");
  const { exitCode, stderr } = run(`add web ${container.path}`, {
    wrapper: ["setpriv", "--bounding-set", "-sys_admin"],
  });
  expect([exitCode, stderr]).toEqual([
    1,
    `cni: Cannot enter network namespace "${container.path}": Operation not permitted (EPERM)\n     run as root (CAP_NET_ADMIN, CAP_SYS_ADMIN)\n`,
  ]);
});

netnsTest("cni run fails for a namespace that is not there, with code 8", ({ host }) => {
  const { run, network, entries } = bench(host);
  network("web");
  const { exitCode, stdout } = run("add web /nonexistent/netns --json");
  expect([exitCode, JSON.parse(stdout).code]).toEqual([1, 8]);
  expect(entries).toThrow("ENOENT");
});
