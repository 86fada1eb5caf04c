import { expect, test } from "bun:test";
import fc from "fast-check";
import * as env from "./env.ts";
import { CniError } from "./error.ts";

const complete = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/run/netns/c1",
  CNI_IFNAME: "eth0",
  CNI_ARGS: "IP=10.0.0.1",
  CNI_PATH: "/opt/cni/bin::/usr/lib/cni",
};

test("parseEnvironment() reads all variables", () => {
  expect(env.parseEnvironment(complete)).toEqual({
    command: "ADD",
    containerId: "c1",
    netns: "/run/netns/c1",
    ifname: "eth0",
    args: "IP=10.0.0.1",
    path: ["/opt/cni/bin", "/usr/lib/cni"],
    netnsOverride: false,
  });
});

for (
  const [verb, missing] of [
    ["ADD", "CNI_CONTAINERID is missing; CNI_NETNS is missing; CNI_IFNAME is missing"],
    ["DEL", "CNI_CONTAINERID is missing; CNI_IFNAME is missing"],
    ["CHECK", "CNI_CONTAINERID is missing; CNI_NETNS is missing; CNI_IFNAME is missing"],
    ["GC", undefined],
    ["STATUS", undefined],
    ["VERSION", undefined],
  ] as const
) {
  test(`parseEnvironment() requires ${missing ? "the attachment" : "nothing else"} for ${verb}`, () => {
    for (const empty of [undefined, ""]) {
      const call = () =>
        env.parseEnvironment({ CNI_COMMAND: verb, CNI_CONTAINERID: empty, CNI_IFNAME: empty, CNI_NETNS: empty });
      if (missing) expect(call).toThrow(new CniError(4, `Cannot run ${verb}: ${missing}`));
      else {expect(call()).toEqual({
          command: verb,
          containerId: "",
          ifname: "",
          args: "",
          path: [],
          netnsOverride: false,
        });}
    }
  });
}

test("parseEnvironment() names missing and wrong variables together", () => {
  expect(() => env.parseEnvironment({ ...complete, CNI_CONTAINERID: "../x", CNI_NETNS: "", CNI_IFNAME: "a/b" }))
    .toThrow(
      'Cannot run ADD: CNI_CONTAINERID "../x" must start with a letter or digit and hold only letters, digits, ' +
        '"_", "." and "-"; CNI_NETNS is missing; CNI_IFNAME "a/b" has a /, a : or white space',
    );
});

test("parseEnvironment() refuses to attach under a name that the kernel gives to no interface", () => {
  for (const name of ["all", "default"]) {
    const call = (verb: string) => env.parseEnvironment({ ...complete, CNI_COMMAND: verb, CNI_IFNAME: name });
    const message = `Cannot run ADD: CNI_IFNAME "${name}" stands for all interfaces in /proc/sys, and names none`;
    expect(() => call("ADD")).toThrow(new CniError(4, message));
    expect(call("DEL").ifname).toBe(name);
  }
});

test("parseEnvironment() refuses to attach under a name that the kernel would make another of, or that breaks a saved ruleset", () => {
  for (const [name, what] of [["eth%d", "%"], ["a%b", "%"], ["%", "%"], ["%%", "%"], ['a"b', '"']] as const) {
    const call = (verb: string) => env.parseEnvironment({ ...complete, CNI_COMMAND: verb, CNI_IFNAME: name });
    expect(() => call("ADD")).toThrow(
      new CniError(4, `Cannot run ADD: CNI_IFNAME ${JSON.stringify(name)} has a ${what}`),
    );
    // What was never attached must not stay attached.
    for (const verb of ["DEL", "CHECK"]) expect(call(verb).ifname).toBe(name);
  }
});

test("parseEnvironment() ignores attachment variables where none is meant", () => {
  expect(env.parseEnvironment({ ...complete, CNI_COMMAND: "GC", CNI_CONTAINERID: "/" })).toMatchObject({
    containerId: "",
    ifname: "",
  });
});

test("parseEnvironment() judges the command first", () => {
  expect(() => env.parseEnvironment({ CNI_COMMAND: "add" })).toThrow('unknown CNI_COMMAND "add"');
  expect(() => env.parseEnvironment({})).toThrow("CNI_COMMAND is missing");
});

for (const [value, expected] of [["1", true], ["TRUE", true], ["yes", false], ["true ", false], ["", false]] as const) {
  test(`parseEnvironment() takes CNI_NETNS_OVERRIDE "${value}" as ${expected}`, () => {
    expect(env.parseEnvironment({ ...complete, CNI_NETNS_OVERRIDE: value }).netnsOverride).toBe(expected);
  });
}

for (const id of ["a", "0", "A-b_c.d", "a".repeat(300)]) {
  test(`containerIdProblem() has none with ${id.slice(0, 10)}`, () => {
    expect(env.containerIdProblem(id)).toBeUndefined();
    expect(env.networkNameProblem(id)).toBeUndefined();
  });
}
for (const id of ["", "-a", ".a", "_a", "a/b", "a b", "a\n", "é", "a:b", "../a", "a\0"]) {
  test(`containerIdProblem() has one with ${JSON.stringify(id)}`, () => {
    expect(env.containerIdProblem(id)).toBeString();
    expect(env.networkNameProblem(id)).toBeString();
  });
}

for (const name of ["eth0", "a".repeat(15), "-x", "%d", "ééééééé", "...", "a\x01", "\ufeff"]) {
  test(`ifnameProblem() has none with ${JSON.stringify(name)}`, () => {
    expect(env.ifnameProblem(name)).toBeUndefined();
  });
}
for (const name of ["", ".", "..", "a".repeat(16), "éééééééé", "a/b", "a:1", "a b", "a\n", "\x85", "\xa0", "\u3000"]) {
  test(`ifnameProblem() has one with ${JSON.stringify(name)}`, () => {
    expect(env.ifnameProblem(name)).toBeString();
  });
}

for (
  const [text, expected] of [
    ["", {}],
    ["IP=10.0.0.1", { IP: "10.0.0.1" }],
    ["IP=10.0.0.1;MAC=02:00:00:00:00:01", { IP: "10.0.0.1", MAC: "02:00:00:00:00:01" }],
    ["IP=;MAC=x", { MAC: "x" }],
    ["IP=a;IP=b", { IP: "b" }],
    ["K8S_POD_NAME=web;IP=a;IgnoreUnknown=1", { IP: "a" }],
    ["IgnoreUnknown=TRUE;x=y", {}],
    ["IgnoreUnknown=false", {}],
  ] as const
) {
  test(`parseArgs() reads "${text}"`, () => {
    expect(env.parseArgs(text, ["IP", "MAC"])).toEqual(expected as never);
  });
}

for (
  const [text, reason] of [
    ["none", 'invalid pair "none"'],
    ["IP=a;", 'invalid pair ""'],
    ["IP=a=b", 'invalid pair "IP=a=b"'],
    ["ip=a;X=y", 'unknown args ["ip=a","X=y"]'],
    ["X=y;IgnoreUnknown=0", 'unknown args ["X=y"]'],
    ["IgnoreUnknown=maybe", 'IgnoreUnknown must be 1, 0, true or false: got "maybe"'],
    ["IgnoreUnknown=", 'IgnoreUnknown must be 1, 0, true or false: got ""'],
    ["__proto__=x", 'unknown args ["__proto__=x"]'],
  ] as const
) {
  test(`parseArgs() refuses "${text}"`, () => {
    expect(() => env.parseArgs(text, ["IP", "MAC"])).toThrow(new CniError(4, `Cannot use CNI_ARGS: ${reason}`));
  });
}

test("parseArgs() tells how to let args for others pass", () => {
  let error: unknown;
  try {
    env.parseArgs("X=y", ["IP"]);
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toMatchObject({ code: 4, details: expect.stringContaining("IgnoreUnknown=1") });
});

test("parsePairs() takes what it can", () => {
  expect(env.parsePairs("a=b;;junk;c=d=e;=f")).toEqual([["a", "b"], ["c", "d=e"], ["", "f"]]);
  expect(env.parsePairs("")).toEqual([]);
});

test("parseArgs() reads back what pairs say", () => {
  const word = fc.string({ minLength: 1, maxLength: 6 }).filter((text) => !/[;=]/.test(text));
  fc.assert(fc.property(word, word, (ip, mac) => {
    expect(env.parseArgs(`IP=${ip};MAC=${mac}`, ["IP", "MAC"])).toEqual({ IP: ip, MAC: mac });
    expect(env.parsePairs(`IP=${ip};MAC=${mac}`)).toEqual([["IP", ip], ["MAC", mac]]);
  }));
});
