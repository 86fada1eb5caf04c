/** Lists of the kernel that change while they are read: each is read again, from the start. */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { productSources, REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { dumpFlowsInPieces, listFlows, type TrackedFlow } from "./conntrack/conntrack.ts";
import { listListeners } from "./diag/listeners.ts";
import { NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE } from "./netlink/message.ts";
import { type Netlink, NETLINK_NETFILTER, NETLINK_ROUTE, openNetlink } from "./netlink/socket.ts";
import type { Netns } from "./netns/netns.ts";
import * as nft from "./nft/objects.ts";
import { transaction } from "./nft/transaction.ts";
import * as address from "./route/address.ts";
import * as bridgeVlan from "./route/bridge_vlan.ts";
import * as filter from "./route/filter.ts";
import * as link from "./route/link.ts";
import * as route from "./route/route.ts";
import * as rule from "./route/rule.ts";
import { listRoutingRules } from "./route/routing_policy.ts";
import * as wholeRoute from "./route/raw_route.ts";
import { IPPROTO_TCP, IPPROTO_UDP } from "./sys/uapi.ts";
import { newNamespaces, runInNetns } from "../testing/netns.ts";
import { serveTcp } from "../testing/traffic.ts";

const TABLE = { family: 1, table: "t" };

interface Message {
  readonly type: number;
  readonly flags: number;
  /** Where its header starts. */
  readonly at: number;
}

function messagesIn(datagram: Uint8Array): Message[] {
  const view = new DataView(datagram.buffer, datagram.byteOffset, datagram.length);
  const found: Message[] = [];
  for (let at = 0; at + 16 <= datagram.length; at += (view.getUint32(at, true) + 3) & ~3) {
    found.push({ type: view.getUint16(at + 4, true), flags: view.getUint16(at + 6, true), at });
  }
  return found;
}

const isDump = (request: Uint8Array): boolean =>
  messagesIn(request).some(({ flags }) => (flags & NLM_F_DUMP) === NLM_F_DUMP);

/** A socket that counts lists; `disturb` sees every answer to the first one. */
function watched(nl: Netlink, disturb: (datagram: Uint8Array) => void): Netlink & { lists: number } {
  const self = {
    lists: 0,
    sequence: 1,
    send(request: Uint8Array) {
      if (isDump(request)) self.lists++;
      nl.send(request);
    },
    receive(wait: boolean) {
      // A copy: all sockets receive into one buffer.
      const datagram = nl.receive(wait)?.slice();
      if (self.lists === 1 && datagram) disturb(datagram);
      return datagram;
    },
    [Symbol.dispose]: () => {},
  };
  return self as Netlink & { lists: number };
}

const RULESET = `table inet t {
  set s { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 } }
  chain c { ip saddr @s accept; }
  chain b { type filter hook input priority 0; jump c; }
}`;

/** A host that has something of everything that can be listed. */
function populate(host: Netns, scope: DisposableStack): void {
  const batch = "link add v0 type veth peer name v1\nlink set v0 up\nlink set v1 up\naddress add 10.0.0.1/24 dev v0\n";
  host.run(() => Bun.spawnSync(["ip", "-batch", "-"], { stdin: Buffer.from(batch) }));
  runInNetns(host, "tc", "qdisc", "add", "dev", "v0", "ingress");
  scope.use(serveTcp(host, "listener", 8080));
  host.run(() => Bun.spawnSync(["nft", "-f", "-"], { stdin: Buffer.from(RULESET) }));
}

const ROUTE_LISTS: Readonly<Record<string, (nl: Netlink) => readonly unknown[]>> = {
  "link.list": (nl) => link.list(nl),
  "address.list": (nl) => address.list(nl),
  "route.list": (nl) => route.list(nl, 2),
  "wholeRoute.list": (nl) => wholeRoute.list(nl),
  "rule.list": (nl) => rule.list(nl),
  listRoutingRules: (nl) => listRoutingRules(nl),
  "filter.listRedirects": (nl) => filter.listRedirects(nl, 2),
  "bridgeVlan.list": (nl) => bridgeVlan.list(nl, 2),
};
const NFT_LISTS: Readonly<Record<string, (nl: Netlink) => readonly unknown[]>> = {
  "nft.listTables": (nl) => nft.listTables(nl),
  "nft.listChains": (nl) => nft.listChains(nl, TABLE),
  "nft.listBaseChains": (nl) => nft.listBaseChains(nl, 1),
  "nft.listRules": (nl) => nft.listRules(nl, TABLE),
  "nft.listLazyRules": (nl) => nft.listLazyRules(nl, TABLE, "c").map(({ handle }) => handle),
  "nft.listElements": (nl) => nft.listElements(nl, TABLE, "s"),
  "listFlows": (nl) => listFlows(nl, { family: 4, protocol: IPPROTO_UDP }),
  dumpFlowsInPieces(nl) {
    let flows: TrackedFlow[] = [];
    for (const _ of dumpFlowsInPieces(nl, () => void (flows = []), (flow) => void flows.push(flow)));
    return flows;
  },
};

/** Where the kernel says that a list changed: in the next part, or only at the end. */
const PLACES: Readonly<Record<string, (messages: readonly Message[]) => Message | undefined>> = {
  "the first message": (messages) => messages[0],
  "the last message": (messages) => messages.find(({ type }) => type === NLMSG_DONE),
};

describe("a list that changed is read again", () => {
  using scope = new DisposableStack();
  const { host } = scope.use(newNamespaces());
  populate(host, scope);
  const { route: rtnetlink, nft: netfilter, diag } = host;
  const all = [
    ...Object.entries(ROUTE_LISTS).map(([name, list]) => ({ name, list, nl: rtnetlink })),
    ...Object.entries(NFT_LISTS).map(([name, list]) => ({ name, list, nl: netfilter })),
    { name: "listListeners", list: (nl: Netlink) => listListeners(nl, IPPROTO_TCP, 1, 65535), nl: diag },
  ];
  const results = all.flatMap(({ name, list, nl }) =>
    Object.entries(PLACES).map(([place, choose]) => {
      const undisturbed = watched(nl, () => {});
      const expected = list(undisturbed);
      const disturbed = watched(nl, (datagram) => {
        const message = choose(messagesIn(datagram));
        if (message) datagram[message.at + 6]! |= NLM_F_DUMP_INTR;
      });
      return { name, place, found: list(disturbed), expected, more: disturbed.lists - undisturbed.lists };
    })
  );
  test.each(results)("$name, as $place says", ({ found, expected, more }) => {
    expect(more).toBe(1);
    expect(found).toEqual(expected);
  });
});

test("elements are listed again if the kernel resized their set meanwhile", () => {
  using scope = new DisposableStack();
  const { host } = scope.use(newNamespaces());
  populate(host, scope);
  // Such a list has one element twice, and lacks another.
  const disturbed = watched(host.nft, (datagram) => {
    const bytes = Buffer.from(datagram.buffer, datagram.byteOffset, datagram.length);
    const at = bytes.indexOf(Uint8Array.of(10, 0, 0, 1));
    if (at >= 0) bytes[at + 3] = 2;
  });
  const keys = nft.listElements(disturbed, TABLE, "s").map(({ key }) => key.join("."));
  expect({ keys: keys.sort(), lists: disturbed.lists }).toEqual({ keys: ["10.0.0.1", "10.0.0.2"], lists: 2 });
});

/** Files of the program in which this occurs. */
const users = (what: RegExp): string[] =>
  productSources()
    .filter((path) => what.test(readFileSync(join(REPOSITORY_ROOT, path), "utf8")));

test("nothing else asks for lists, so that all are read again", () => {
  expect(users(/NLM_F_DUMP\b/)).toEqual([
    "ffi/netlink/dump_pieces.ts",
    "ffi/netlink/message.ts",
    "ffi/netlink/socket.ts",
  ]);
});

/** What may wait, where it is, and why each ends. */
const WAITS: readonly [what: RegExp, where: Readonly<Record<string, string>>][] = [
  [/sys\.recv\b/, {
    "ffi/packet/probe.ts": "MSG_DONTWAIT",
    "ffi/packet/arp.ts": "MSG_DONTWAIT",
    "ffi/netlink/receive_buffer.ts": "MSG_DONTWAIT",
    "ffi/dbus/connection.ts": "MSG_DONTWAIT",
    "ffi/sys/inet_socket.ts": "MSG_DONTWAIT",
    "ffi/packet/packet_socket.ts": "MSG_DONTWAIT",
    "ffi/sys/stream_socket.ts": "MSG_DONTWAIT",
  }],
  [/sys\.(recvfrom|sendto)\b/, { "ffi/sys/inet_socket.ts": "MSG_DONTWAIT" }],
  [/sys\.recvmmsg\b/, { "ffi/netlink/receive_buffer.ts": "MSG_DONTWAIT" }],
  [/sys\.send\b/, {
    "ffi/packet/probe.ts": "one small packet",
    "ffi/packet/arp.ts": "a few frames, of which the socket's buffer takes hundreds",
    "ffi/netlink/socket.ts": "the kernel takes a request at once: it is never queued",
    "ffi/dbus/connection.ts": "SO_SNDTIMEO: see firewalld_test.ts",
    "ffi/sys/unix_socket.ts": "a few short messages for each connection",
    "ffi/sys/inet_socket.ts": "MSG_DONTWAIT",
    "server/systemd.ts": "MSG_DONTWAIT",
    "ffi/packet/packet_socket.ts": "MSG_DONTWAIT",
    "ffi/sys/stream_socket.ts": "MSG_DONTWAIT",
  }],
  [/sys\.sendmsg\b/, {
    "ffi/sys/deferred_close.ts": "the first message of a pair of sockets",
    "ffi/sys/unix_socket.ts": "one of the first messages of a connection",
  }],
  [/sys\.recvmsg\b/, { "ffi/sys/unix_socket.ts": "after poll(2)" }],
  [/sys\.connect\b/, {
    "ffi/packet/probe.ts": "O_NONBLOCK, or a raw socket",
    "ffi/dbus/connection.ts": "SO_SNDTIMEO: see firewalld_test.ts",
    "ffi/sys/unix_socket.ts": "O_NONBLOCK, or a control socket, whose queue takes thousands",
    "ffi/sys/inet_socket.ts": "O_NONBLOCK",
    "server/systemd.ts": "a datagram socket",
  }],
  [/sys\.accept4\b/, {
    "ffi/sys/connection_queue.ts": "O_NONBLOCK",
    "ffi/sys/inet_socket.ts": "O_NONBLOCK",
    "ffi/sys/unix_socket.ts": "after poll(2), or O_NONBLOCK",
  }],
  [/sys\.epoll_wait\b/, {
    "ffi/sys/connection_queue.ts": "a worker without a call; SIGTERM ends it",
    "ffi/sys/event_poll.ts": "a server without a client; the end of its lifetime ends it",
  }],
  [/sys\.flock\b/, { "ffi/sys/lock.ts": "a timer, or LOCK_NB: see lock_test.ts" }],
  [/sys\.waitid\b/, { "ffi/sys/process.ts": "WNOHANG" }],
  [/sys\.(read|write)\b/, {
    "server/call_log.ts": "after poll(2), and no more than a pipe takes",
    "server/reports.ts": "O_NONBLOCK",
    "server/worker.ts": "O_NONBLOCK",
    "ffi/sys/subprocess.ts": "after poll(2), and no more than a pipe takes",
    "ffi/sys/file.ts": "see the last two",
    "ffi/sys/atomic_install.ts": "ordinary files",
    "plugins/tap/labelled_tap.ts": "nothing, of no bytes",
    "ffi/sys/signal_descriptor.ts": "after poll(2)",
    "inspect/effects/virtual_files.ts": "ordinary files",
  }],
  [/sys\.poll\b/, {
    "ffi/sys/subprocess.ts": "a deadline",
    "ffi/sys/poll.ts": "see the next five",
    "server/call.ts": "the reader of an answer; its end, or that of the caller, ends it",
  }],
  [/\bpollFor\(/, {
    "server/call_log.ts": "no time",
    "ffi/packet/probe.ts": "a deadline",
    "ffi/sys/file.ts": "see the last two",
    "ffi/sys/poll.ts": "is defined there",
    "plugins/dhcp/client.ts": "a deadline; an ADD's is put off while the server works, which gives up in time",
  }],
  [/\bpollEach\(/, {
    "ffi/packet/probe.ts": "a deadline",
    "ffi/sys/poll.ts": "is defined there",
  }],
  [/\bawaitReadable\(/, {
    "ffi/packet/probe.ts": "a deadline",
    "ffi/sys/unix_socket.ts": "no time",
    "ffi/sys/stdio.ts": "a deadline",
    "ffi/packet/arp.ts": "a deadline",
    "ffi/sys/poll.ts": "is defined there",
    "ffi/dbus/connection.ts": "a deadline",
    "ffi/netlink/socket.ts": "a deadline: see the test below",
    "server/call.ts": "a deadline",
    "server/on_demand.ts": "a deadline",
    "server/sockets.ts": "a deadline",
    "server/worker.ts": "no time",
    "plugins/dnsname/client.ts": "a deadline",
    "plugins/lib/policy/ask_line.ts": "a deadline",
  }],
  // Without a deadline: whoever is at the other end of a pipe has as long as it likes. An ordinary file, and one of /proc, is always ready.
  [/\b(readAll|readFile|readTail)\(/, {
    "cmd/commands/install.ts": "programs that are installed",
    "ffi/sys/program_mark.ts": "programs that are installed",
    "runtime/load.ts": "a pipe that the user names; a signal ends it",
    "ffi/sys/stdio.ts": "who starts a plugin writes its request, and closes",
    "ffi/sys/file.ts": "is defined there",
  }],
  [/\bwriteAll\(/, {
    "ffi/sys/stdio.ts": "who starts a plugin reads its answer, and what it says",
    "ffi/sys/atomic_file.ts": "ordinary files",
    "ffi/sys/atomic_install.ts": "ordinary files",
    "ffi/sys/file.ts": "ordinary files, /proc",
    "cmd/trace/traced_call.ts": "a file that the user names",
  }],
];

test.each(WAITS)("nothing waits by %p but where it is known why that ends", (what, where) => {
  expect(users(what)).toEqual(Object.keys(where).sort());
});

test("no call without a function of its own waits", () => {
  const called = productSources()
    // It names what it forbids, and calls of Landlock, which do not wait.
    .filter((path) => path !== "ffi/sys/confinement.ts")
    .flatMap((path) => readFileSync(join(REPOSITORY_ROOT, path), "utf8").match(/\bSYS_\w+/g) ?? []);
  const known = [
    ...[
      "clock_gettime",
      "clone3",
      "fstat",
      "getdents64",
      "gettid",
      "memfd_create",
      "newfstatat",
      "pidfd_open",
      "prctl",
    ],
    ...["pread64", "pwrite64", "seccomp", "shutdown", "timer_create", "timer_delete", "timer_settime"],
    ...["timerfd_create", "timerfd_settime"],
  ];
  expect([...new Set(called)].sort()).toEqual(known.map((name) => `SYS_${name}`));
  // By number, and by way of that table, nothing else is called.
  expect(users(/sys\.syscall\((?!SYS_)/)).toEqual([]);
});

test.skipIf(Bun.which("strace") === null)("a socket gives up when the kernel says nothing", () => {
  const script = `const { currentNetns } = await import(${JSON.stringify(join(REPOSITORY_ROOT, "ffi/netns/netns.ts"))});
    using host = currentNetns(); for (const nl of [host.route, host.nft, host.diag]) console.log(nl.receive(true));`;
  const strace = ["strace", "-f", "-e", "inject=/^p?poll$:retval=0", "-e", "trace=/^p?poll$", "-e", "signal=none"];
  const { stdout, stderr } = Bun.spawnSync([...strace, process.execPath, "-e", script]);
  expect(stdout.toString()).toBe("undefined\n".repeat(3));
  expect(stderr.toString().match(/poll\(\[\{fd=\d+, events=POLLIN\}\], 1, (5000\)|\{tv_sec=5, tv_nsec=0\})/g))
    .toHaveLength(3);
});

/** Acts once, when the first part of the list is there and the rest is still to be made. */
function midway(act: () => void): (datagram: Uint8Array) => void {
  let parts = 0;
  return () => {
    if (++parts === 1) act();
  };
}

describe("the kernel itself", () => {
  test("says so of links, and what was made meanwhile is on the list", () => {
    using namespaces = newNamespaces();
    const { host } = namespaces;
    for (let i = 0; i < 200; i++) link.add(host.route, { name: `br${i}`, info: { kind: "bridge" } });
    using other = host.run<Netlink>(() => openNetlink(NETLINK_ROUTE));
    const nl = watched(host.route, midway(() => link.add(other, { name: "late", info: { kind: "bridge" } })));
    const names = link.list(nl).map(({ name }) => name);
    expect(nl.lists).toBe(2);
    expect(names).toContain("late");
    expect(new Set(names).size).toBe(names.length);
  });

  test("says so of rules, and one that went meanwhile is not on the list", () => {
    using namespaces = newNamespaces();
    const { host } = namespaces;
    const rules = Array.from({ length: 2000 }, (_, i) => `ip saddr 10.0.${i >> 8}.${i & 255} counter accept`);
    const text = `table inet t { chain c { ${rules.join("; ")}; }; }`;
    host.run(() => Bun.spawnSync(["nft", "-f", "-"], { stdin: Buffer.from(text) }));
    const before = nft.listRules(host.nft, TABLE, "c");
    using other = host.run<Netlink>(() => openNetlink(NETLINK_NETFILTER));
    const nl = watched(
      host.nft,
      midway(() => {
        const tx = transaction(other);
        tx.deleteRule(TABLE, "c", before[0]!.handle!);
        tx.commit();
      }),
    );
    const after = nft.listRules(nl, TABLE, "c");
    expect(nl.lists).toBe(2);
    expect(after.map(({ handle }) => handle)).toEqual(before.slice(1).map(({ handle }) => handle));
  });
});
