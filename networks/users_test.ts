import { expect, test } from "bun:test";
import { findUncachedUsers, type NetworkUser } from "./users.ts";

const reserved = (containerId: string, ifname?: string): NetworkUser => ({
  ...{ containerId, evidence: "a reserved address" },
  ...ifname !== undefined && { ifname },
});

test("what a network has beside the cache is listed once, without what the cache knows", () => {
  const users = [
    ...[reserved("c1", "eth0"), reserved("c1", "eth1"), reserved("c1")],
    ...[reserved("c2", "eth0"), reserved("c2", "eth0"), reserved("c2"), reserved("c2")],
  ];
  expect(findUncachedUsers(users, [{ containerId: "c1", ifname: "eth0" }])).toEqual([
    ...[reserved("c1", "eth1"), reserved("c2", "eth0"), reserved("c2")],
  ]);
});

test("each user and each attachment is read a fixed number of times, however many there are", () => {
  let reads = 0;
  const counted = <T extends object>(target: T): T =>
    new Proxy(target, { get: (object, key) => (reads++, Reflect.get(object, key)) });
  const count = 300;
  const users = Array.from({ length: count }, (_, i) => counted(reserved(`new-${i}`, "eth0")));
  const attachments = Array.from({ length: count }, (_, i) => counted({ containerId: `old-${i}`, ifname: "eth0" }));
  expect(findUncachedUsers(users, attachments)).toHaveLength(count);
  expect(reads).toBeLessThanOrEqual(10 * count);
});
