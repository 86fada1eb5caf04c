import { expect, test } from "bun:test";
import {
  formatAlias,
  formatOwner,
  formatOwnerWithNote,
  parseAlias,
  parseNote,
  parseOwner,
  sameOwner,
} from "./owner.ts";

const owner = { network: "web", containerId: "4f1b", ifname: "eth0" };

test("parseOwner() reads what formatOwner() wrote, and nothing else", () => {
  expect(formatOwner(owner)).toBe("web 4f1b eth0");
  expect(parseOwner("web 4f1b eth0")).toEqual(owner);
  for (const text of ["", "web", "web 4f1b", "web  eth0", "web 4f1b eth0 x", "web 4f1b "]) {
    expect(parseOwner(text)).toBeUndefined();
  }
});

test("parseAlias() reads what formatAlias() wrote, and nothing that somebody else may have written", () => {
  expect(formatAlias(owner)).toBe("cni:web 4f1b eth0");
  expect(parseAlias("cni:web 4f1b eth0")).toEqual(owner);
  for (const text of [undefined, "", "web 4f1b eth0", "cni:web 4f1b", "cni: web 4f1b eth0"]) {
    expect(parseAlias(text)).toBeUndefined();
  }
});

test("formatOwner() refuses what the kernel would cut", () => {
  const network = "n".repeat(250 - " 4f1b eth0".length);
  expect(formatOwner({ ...owner, network })).toHaveLength(250);
  expect(() => formatOwner({ ...owner, network: `${network}n` })).toThrow(
    expect.objectContaining({ code: 4, message: expect.stringMatching(/^.{0,400}have 251 bytes .* and 250 fit$/) }),
  );
  expect(() => formatOwner({ ...owner, containerId: "c".repeat(70_000) })).toThrow(/^.{0,400}$/);
});

test("sameOwner() compares all three names", () => {
  expect(sameOwner(owner, { ...owner })).toBeTrue();
  for (const key of ["network", "containerId", "ifname"]) {
    expect(sameOwner(owner, { ...owner, [key]: "x" })).toBeFalse();
  }
  expect(sameOwner(owner, undefined)).toBeFalse();
});

test("formatOwnerWithNote() writes a note where there is one that fits, and the owner is read all the same", () => {
  expect(formatOwnerWithNote(owner, undefined)).toBe("web 4f1b eth0");
  const noted = formatOwnerWithNote({ ...owner, ifname: "#0" }, "1abc");
  expect([noted, parseOwner(noted), parseNote(noted)]).toEqual([
    "web 4f1b #0 #1abc",
    { ...owner, ifname: "#0" },
    "1abc",
  ]);
  expect(parseNote("web 4f1b #0")).toBeUndefined();
  const network = "n".repeat(250 - " 4f1b eth0 #1abc".length);
  expect(formatOwnerWithNote({ ...owner, network }, "1abc")).toHaveLength(250);
  expect(formatOwnerWithNote({ ...owner, network }, "1abcd")).toBe(formatOwner({ ...owner, network }));
});
