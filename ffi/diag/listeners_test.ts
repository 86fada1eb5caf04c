import { expect, test } from "bun:test";
import { acknowledgement, recordedMessage, recordingSocket } from "../../testing/netlink.ts";
import type { Netns } from "../netns/netns.ts";
import { IPPROTO_TCP, IPPROTO_UDP } from "../sys/uapi.ts";
import { netnsTest, newNamespaces, runInNetns } from "../../testing/netns.ts";
import { serveTcp, serveUdp } from "../../testing/traffic.ts";
import { listListeners } from "./listeners.ts";

const AT_PEER = { hostname: "127.0.0.3", port: 8083 };

test("what is asked for is what ss(8) asks for", () => {
  const nl = recordingSocket(...[1, 2, 3].map((sequence) => acknowledgement(sequence, 0)));
  listListeners(nl, IPPROTO_UDP, 80, 443);
  expect(nl.sent[0]!.toHex()).toBe(recordedMessage("diag_udp").toHex());
  listListeners(nl, IPPROTO_TCP, 80, 443);
  // The older struct has the states behind the sockets' addresses, and no protocol, for which the type of the message stands.
  const theirs = recordedMessage("diag_tcp");
  const ours = nl.sent.at(-1)!;
  expect([ours[4], ours.subarray(6, 8).toHex(), ours[16]]).toEqual([18, theirs.subarray(6, 8).toHex(), 2]);
  expect(ours.subarray(68, 72).toHex()).toBe(theirs.subarray(20, 24).toHex());
  expect(ours.subarray(76).toHex()).toBe(theirs.subarray(72).toHex());
});

/** Serves on each of these ports. */
async function listenOn(host: Netns, resources: DisposableStack): Promise<void> {
  runInNetns(host, "ip", "link", "set", "lo", "up");
  for (const [i, address] of ["0.0.0.0", "127.0.0.1", "::", "::1", "::ffff:127.0.0.2", "127.0.0.1"].entries()) {
    resources.use(serveTcp(host, "tcp", 8080 + i, address));
    resources.use(await serveUdp(host, "udp", 8080 + i, address));
  }
}

/** `0.0.0.0:80`, as ss(8) prints them; `*` stands for an IPv6 socket that IPv4 reaches as well. */
function shown(host: Netns, ...options: string[]): string[] {
  const lines = runInNetns(host, "ss", "-H", "-nO", ...options, "sport >= :8081 and sport <= :8084").trim().split("\n");
  return lines.map((line) => line.split(/\s+/)[2]!).sort();
}

test("sockets that wait are listed over both families, and no others", async () => {
  using resources = new DisposableStack();
  const { host } = resources.use(newNamespaces());
  await listenOn(host, resources);
  // One with a peer waits for nobody else.
  let client: Promise<Bun.udp.ConnectedSocket<"buffer">>;
  host.run(() => void (client = Bun.udpSocket({ ...AT_PEER, connect: { hostname: "127.0.0.1", port: 9 } })));
  resources.use({ [Symbol.dispose]: () => void client.then((socket) => socket.close()) });
  await client!;
  for (
    const [protocol, ...options] of [[IPPROTO_TCP, "-t", "state", "listening"], [
      IPPROTO_UDP,
      "-u",
      "state",
      "unconnected",
    ]] as const
  ) {
    const found = listListeners(host.diag, protocol, 8081, 8084);
    const text = found.map(({ address, port, v6Only }) =>
      address === "::" && !v6Only ? `*:${port}` : address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`
    );
    const mapped = (each: string) => each.replace("[::ffff:127.0.0.2]", "127.0.0.2");
    expect(text.sort()).toEqual(shown(host, ...options).map(mapped).sort());
    expect(found).toHaveLength(4);
    const own = runInNetns(host, "sh", "-c", `ls -l /proc/${process.pid}/fd`);
    for (const { inode, uid } of found) expect([own.includes(`socket:[${inode}]`), uid]).toEqual([true, 0]);
    expect(listListeners(host.diag, protocol, 1, 79)).toEqual([]);
    expect(listListeners(host.diag, protocol, 8080, 8080)).toHaveLength(1);
  }
});

netnsTest("a protocol without sockets is ENOENT", ({ host }) => {
  const error = (() => {
    try {
      return listListeners(host.diag, 47, 1, 2);
    } catch (error) {
      return error;
    }
  })();
  expect(error).toMatchObject({ code: "ENOENT", request: "SOCK_DIAG_BY_FAMILY" });
});
