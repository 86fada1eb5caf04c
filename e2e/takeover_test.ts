/**
 * A node changes hands: what the reference plugins attached is deleted and collected by this program, and the other way round.
 *
 * `cni run` calls what stands in the plugin directory, and its own plugins once that is empty; what it remembers, libcni's files, stays.
 */
import { afterAll, expect } from "bun:test";
import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../ffi/netns/netns.ts";
import { runInNetns, runShellInNetns } from "../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp } from "../testing/traffic.ts";
import { foreignRuleset, iptablesSave, withoutMark } from "../testing/ruleset.ts";
import { testWith } from "../testing/binary.ts";
import { newCliSandboxes } from "../testing/cli.ts";

const REFERENCE = "/usr/lib/cni";
const PROGRAMS = [join(REFERENCE, "bridge"), "iptables", "nft", "ip", "tc"];
const { root, bench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

const bandwidth = { ingressRate: 80_000_000, ingressBurst: 8_000_000, egressRate: 80_000_000, egressBurst: 8_000_000 };

/** What the administrator has: it must be the same afterwards, and has iptables make all of its tables and chains before. */
const ADMINISTRATOR = ["iptables", "ip6tables"].flatMap((program) => [
  `${program} -P FORWARD DROP`,
  `${program} -A INPUT -i lo -j ACCEPT; ${program} -A OUTPUT -o lo -j ACCEPT; ${program} -A FORWARD -i none0 -j ACCEPT`,
  ...["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"].map((chain) => `${program} -t nat -A ${chain} -p 99 -j ACCEPT`),
]);

const ENV = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/nonexistent/bus" };

type Who = "theirs" | "ours";

interface Setup {
  /** Commands that set up what the administrator has. */
  readonly administrator?: readonly string[];
  /** A plugin that the network does without. */
  readonly without?: string;
}

class Node implements Disposable {
  readonly #resources = new DisposableStack();
  readonly host: Netns = this.#resources.use(createNetns());
  readonly bench = bench(this.host);
  readonly #state = join(this.bench.conf, "../state");

  readonly #without: string;

  constructor({ administrator = ADMINISTRATOR, without = "" }: Setup = {}) {
    this.#without = without;
    mkdirSync(this.#state);
    this.configure("1.0.0");
    const quick = "for each in all default; do echo 0 >/proc/sys/net/ipv6/conf/$each/accept_dad; done";
    runShellInNetns(this.host, quick, "ip link set lo up", ...administrator);
    // What each of them leaves, as the bridge stays.
    runShellInNetns(
      this.host,
      "ip link add br9 type bridge; ip addr add 10.9.0.1/24 dev br9; ip addr add fd00:9::1/64 dev br9 nodad",
    );
    runShellInNetns(this.host, "ip link set br9 up");
  }

  /** Writes the network; only version 1.1.0 has GC, which the reference of the distribution does not speak. */
  configure(cniVersion: string): void {
    const dataDir = this.#state;
    const ranges = [[{ subnet: "10.9.0.0/24" }], [{ subnet: "fd00:9::/64" }]];
    const ipam = { type: "host-local", dataDir: join(dataDir, "ipam"), ranges };
    const plugins = [
      {
        type: "bridge",
        bridge: "br9",
        isDefaultGateway: true,
        ipMasq: true,
        macspoofchk: true,
        hairpinMode: true,
        ipam,
      },
      {
        type: "tuning",
        dataDir: join(dataDir, "tuning"),
        mtu: 1400,
        sysctl: { "net.ipv4.conf.all.log_martians": "1" },
      },
      { type: "portmap", capabilities: { portMappings: true } },
      { type: "firewall" },
      { type: "bandwidth", ...bandwidth },
      { type: "sbr" },
    ].filter(({ type }) => type !== this.#without);
    writeFileSync(join(this.bench.conf, "net.conflist"), JSON.stringify({ cniVersion, name: "net", plugins }));
  }

  /** Puts links to somebody's plugins into the plugin directory. */
  #link(who: Who): void {
    const { bin } = this.bench;
    for (const name of readdirSync(bin)) unlinkSync(join(bin, name));
    if (who === "theirs") {
      for (const name of readdirSync(REFERENCE)) symlinkSync(join(REFERENCE, name), join(bin, name));
    }
  }

  run(who: Who, command: string): string {
    this.#link(who);
    const { exitCode, stdout, stderr } = this.bench.run(command, { env: ENV });
    if (exitCode !== 0) throw new Error(`${who}: cni run ${command}: ${stdout}${stderr}`);
    return stdout;
  }

  /** Runs several commands at once; gives what each said on stderr and its exit status. */
  async together(who: Who, commands: readonly string[]): Promise<string[]> {
    this.#link(who);
    const children = this.host.run(() =>
      commands.map((each) => Bun.spawn(this.bench.command(each), { env: ENV, stdout: "ignore", stderr: "pipe" }))
    );
    return await Promise.all(children.map(async ({ stderr, exited }) => `${await stderr.text()}${await exited}`));
  }

  /** A container with a port of the host. */
  add(who: Who, id: string, port: number): Container {
    const netns = createNetns();
    const end = once(() => netns[Symbol.dispose]());
    this.#resources.defer(end);
    this.run(who, `add net ${netns.path} --container-id ${id} -p ${port}:80`);
    return { netns, end, port };
  }

  /** The same, with a server that says who it is. */
  addServer(who: Who, id: string, port: number): Container {
    const container = this.add(who, id, port);
    this.#resources.use(serveTcp(container.netns, id, 80));
    return container;
  }

  /** Whether it is reached by its port: `undefined` or its name and who it thinks asked. */
  ask({ port }: Container, patience?: number): Promise<string | undefined> {
    return requestTcp(this.host, "10.9.0.1", port, patience);
  }

  /** All that anybody could have left on the host. */
  left() {
    const files = (path: string): string[] =>
      existsSync(path) ? readdirSync(path, { recursive: true, encoding: "utf8" }).map((name) => join(path, name)) : [];
    const isState = (path: string) =>
      !/last_reserved_ip\.\d+$|\/\.net\.index$|\/lock$|\.lock$|\/(net|results|tuning|ipam|locks?)$/.test(path);
    return {
      saved: iptablesSave(this.host),
      rules: foreignRuleset(this.host),
      own: ownElements(this.host),
      links: JSON.parse(runInNetns(this.host, "ip", "-j", "link")).map(({ ifname }: { ifname: string }) => ifname)
        .sort(),
      files: [...files(this.#state), ...files(this.bench.cache)].filter(isState).sort(),
    };
  }

  forget(): void {
    rmSync(join(this.bench.cache, "results"), { recursive: true });
  }

  [Symbol.dispose](): void {
    this.#resources.dispose();
  }
}

interface Container {
  readonly netns: Netns;
  /** Ends the namespace. */
  end(): void;
  readonly port: number;
}

function once(call: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) call();
    isDone = true;
  };
}

/** Elements of our own tables. */
const ownElements = (host: Netns): string[] =>
  [...withoutMark(runShellInNetns(host, "nft list ruleset")).matchAll(/elements = \{([^}]*)\}/g)].map(([, all]) =>
    all!.trim()
  );

/** What a container has beyond loopback and what it was born with. */
const inside = (netns: Netns) => ({
  links: JSON.parse(runInNetns(netns, "ip", "-j", "link")).map(({ ifname }: { ifname: string }) => ifname),
  rules: runInNetns(netns, "ip", "rule"),
  tuned: runInNetns(netns, "cat", "/proc/sys/net/ipv4/conf/all/log_martians").trim(),
});

testWith(
  PROGRAMS,
  "attached by the reference, deleted by this program: nothing is left, and others keep what they have",
  async () => {
    using node = new Node();
    const untouched = node.left();
    const c1 = node.addServer("theirs", "c1", 8081);
    const one = node.left();
    const c2 = node.addServer("theirs", "c2", 8082);
    expect([await node.ask(c1), await node.ask(c2)]).toEqual([
      expect.stringContaining("c1 "),
      expect.stringContaining("c2 "),
    ]);
    for (const name of ["CNI-HOSTPORT-DNAT", "CNI-DN-", "CNI-FORWARD", "CNI-HOSTPORT-SETMARK", 'id: \\"c2\\"']) {
      expect(node.left().saved).toContain(name);
    }
    expect(node.left().rules).toContain("macspoofchk-c2-eth0");
    node.run("ours", "del net --container-id c2");
    expect(node.left()).toEqual(one);
    expect(inside(c2.netns)).toMatchObject({ links: ["lo"] });
    expect(inside(c2.netns).rules).not.toContain("from 10.9");
    expect([await node.ask(c1), await node.ask(c2, NO_ANSWER_TIMEOUT_MS)]).toEqual([
      expect.stringContaining("c1 "),
      undefined,
    ]);
    node.run("ours", "del net --container-id c1");
    node.run("ours", "del net --container-id c1");
    expect(node.left()).toEqual(untouched);
  },
);

testWith(
  PROGRAMS,
  "attached by the reference, deleted by this program all at once while iptables is at work",
  async () => {
    using node = new Node();
    const untouched = node.left();
    const ids = Array.from({ length: 6 }, (_, i) => `c${i}`);
    ids.forEach((id, i) => node.add("theirs", id, 8081 + i));
    const flag = join(node.bench.conf, "at-work");
    writeFileSync(flag, "");
    const rule = "INPUT -p 98 -j ACCEPT";
    const work =
      `while [ -e ${flag} ]; do iptables -t nat -A ${rule} && until iptables -t nat -D ${rule}; do :; done; done`;
    const administrator = node.host.run(() => Bun.spawn(["sh", "-c", work], { stderr: "ignore" }));
    expect(await node.together("ours", ids.map((id) => `del net --container-id ${id}`))).toEqual(ids.map(() => "0"));
    unlinkSync(flag);
    await administrator.exited;
    expect(node.left()).toEqual(untouched);
  },
);

for (
  const [what, prepare] of Object.entries({
    "its namespace is gone": (_: Node, { end }: Container) => end(),
    "nobody remembers its result": (node: Node) => node.forget(),
  })
) {
  testWith(PROGRAMS, `attached by the reference, deleted by this program when ${what}`, () => {
    using node = new Node();
    const untouched = node.left();
    const c1 = node.add("theirs", "c1", 8081);
    prepare(node, c1);
    const gone = what.startsWith("its");
    node.run("ours", `del net ${gone ? "" : `${c1.netns.path} `}--container-id c1`);
    expect(node.left()).toEqual(untouched);
  });
}

testWith(
  PROGRAMS,
  "attached by the reference, collected by this program: the dead leave nothing, the living all",
  async () => {
    using node = new Node();
    const untouched = node.left();
    const c1 = node.addServer("theirs", "c1", 8081);
    const one = node.left();
    node.add("theirs", "c2", 8082);
    node.configure("1.1.0");
    node.run("ours", "gc net --valid c1/eth0");
    expect(node.left()).toEqual(one);
    expect(await node.ask(c1)).toStartWith("c1 ");
    node.run("ours", "gc net --all");
    expect(node.left()).toEqual(untouched);
  },
);

testWith(PROGRAMS, "on a host without iptables rules, its empty chains are all that stays", () => {
  using node = new Node({ administrator: [] });
  const untouched = node.left();
  node.add("theirs", "c1", 8081);
  node.run("ours", "del net --container-id c1");
  const { saved, rules, ...rest } = node.left();
  const { saved: _, rules: __, ...before } = untouched;
  expect(rest).toEqual(before);
  expect(saved.split("\n").filter((line) => !/^(\*\w+|:[A-Z]+ ACCEPT \[\]|COMMIT|)$/.test(line))).toEqual([]);
  const isOfChains = (line: string) =>
    /^(table ip6? (nat|filter) \{|\tchain [A-Z]+ \{|\t\ttype .* policy accept;|\t?\}|)$/.test(line);
  expect(rules.split("\n").filter((line) => !isOfChains(line))).toEqual([]);
});

testWith(
  PROGRAMS,
  "and back: attached by this program, deleted by the reference, the rest collected by this program",
  async () => {
    // The reference's sbr fails where the interface is gone, so that no chain of plugins with it can be deleted twice.
    using node = new Node({ without: "sbr" });
    const untouched = node.left();
    const c1 = node.addServer("ours", "c1", 8081);
    const one = node.left();
    const c2 = node.addServer("ours", "c2", 8082);
    // The reference 1.1.1 says that it finds no chain of its own, after it has done everything, and is content when asked again.
    expect(() => node.run("theirs", "del net --container-id c2")).toThrow("-j CNI-");
    node.run("theirs", "del net --container-id c2");
    // The link and the address are free, and nobody remembers it.
    expect(node.left()).toMatchObject({ links: one.links, files: one.files });
    expect(inside(c2.netns).links).toEqual(["lo"]);
    const c3 = node.addServer("theirs", "c3", 8083);
    expect([await node.ask(c1), await node.ask(c3)]).toEqual([
      expect.stringContaining("c1 "),
      expect.stringContaining("c3 "),
    ]);
    node.run("theirs", "del net --container-id c3");
    expect(node.left().own).not.toEqual(one.own);
    node.configure("1.1.0");
    node.run("ours", "gc net --valid c1/eth0");
    expect(node.left().own).toEqual(one.own);
    expect(await node.ask(c1)).toStartWith("c1 ");
    expect(() => node.run("theirs", "del net --container-id c1")).toThrow("-j CNI-");
    node.run("ours", "gc net --all");
    expect(node.left()).toMatchObject({ own: untouched.own, links: untouched.links, files: untouched.files });
  },
);
