import { expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SOCK_STREAM } from "./uapi.ts";
import { connectTo, listenAt, receivePacket, refuseConnections, socketAddress } from "./unix_socket.ts";

test("refuseConnections() ends connections that wait, and no other comes", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-socket-"));
  const path = join(directory, "socket");
  using listener = listenAt(path);
  using first = connectTo(path)!;
  using second = connectTo(path)!;
  refuseConnections(listener.fd);
  for (const { fd } of [first, second]) expect(receivePacket(fd, new Uint8Array(1)).bytes).toHaveLength(0);
  expect(connectTo(path)).toBeUndefined();
  rmSync(directory, { recursive: true });
});

test("connectTo() leaves no descriptor where it fails", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-socket-"));
  const path = join(directory, "socket");
  using _listener = listenAt(path);
  const descriptors = () => readdirSync("/proc/self/fd").length;
  const before = descriptors();
  for (let i = 0; i < 10; i++) expect(() => connectTo(path, SOCK_STREAM)).toThrow("Cannot connect");
  expect(descriptors()).toBe(before);
  rmSync(directory, { recursive: true });
});

test("socketAddress() refuses a path that the kernel would cut", () => {
  expect(() => socketAddress("/".padEnd(108, "a"))).toThrow("more than 107 bytes");
  expect(socketAddress("@a")).toEqual(Uint8Array.of(1, 0, 0, 97));
});
