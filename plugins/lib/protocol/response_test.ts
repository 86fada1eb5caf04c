import { describe, expect, test } from "bun:test";
import { CniError } from "../../../spec/error.ts";
import { stringifyResult } from "../../../spec/result.ts";
import { type FailedProgram, NotRunError, parsePluginError, parsePluginResult } from "./response.ts";

function failure(response: Partial<FailedProgram>): { code: number; message: string; details: string | undefined } {
  const { code, message, details } = parsePluginError({ exitCode: 1, stdout: "", ...response }, "x");
  return { code, message, details };
}

describe("parsePluginError() takes the plugin's own error", () => {
  test.each([
    ["whole", '{"cniVersion":"1.1.0","code":11,"msg":"busy","details":"later"}', 11, "busy", "later"],
    ["keys in any case", '{"CODE":101,"Msg":"no","dETAILS":"why"}', 101, "no", "why"],
    ["code 0", '{"code":0,"msg":"no"}', 0, "no", undefined],
    ["without details", '{"code":7,"msg":"no","details":""}', 7, "no", undefined],
    ["without a code", '{"msg":"no"}', 999, "no", undefined],
    ["members that are null", '{"code":null,"msg":"no","details":null}', 999, "no", undefined],
    ["other members", '{"code":7,"msg":"no","more":[1]}\n', 7, "no", undefined],
  ])("%s", (_, stdout, code, message, details) => {
    expect(failure({ stdout })).toEqual({ code, message, details });
  });

  test("and what it said on standard error", () => {
    const stdout = '{"code":7,"msg":"no","details":"why"}';
    expect(failure({ stdout, stderr: 'two\n"lines"' }).details).toBe('why; it said "two\\n\\"lines\\""');
    expect(failure({ stdout: '{"code":7,"msg":"no"}', stderr: "log" }).details).toBe('it said "log"');
  });
});

describe("parsePluginError() names the program that failed", () => {
  const program = "/opt/cni/bin/x";

  test("also without an error object", () => {
    expect(failure({ stdout: '{"code":7,"msg":"no","details":"why"}', program }).details).toBe(
      'why; its program is "/opt/cni/bin/x"',
    );
    expect(failure({ program }).details).toBe(
      'it printed nothing, neither a result nor an error; its program is "/opt/cni/bin/x"',
    );
  });

  test("and what to do with one that does not speak the version, which has done nothing", () => {
    const refusal = { exitCode: 1, stdout: '{"code":1,"msg":"incompatible"}', program };
    const lacking = { ...refusal, isVersionUnsupported: true };
    expect(parsePluginError(lacking, "x")).toBeInstanceOf(NotRunError);
    expect(failure(lacking).details).toBe('its program is "/opt/cni/bin/x"');
    expect(failure({ ...lacking, shadowsBuiltin: true })).toEqual({
      code: 1,
      message: "incompatible",
      details: 'its program is "/opt/cni/bin/x", used instead of the built-in plugin; ' +
        "remove it; or replace every plugin in the directory: cni install --force /opt/cni/bin",
    });
  });

  test("and blames none that may have been told so by the one it called", () => {
    const refusal = { exitCode: 1, stdout: '{"code":1,"msg":"incompatible"}', program, shadowsBuiltin: true };
    for (const each of [refusal, { ...refusal, isVersionUnsupported: false }]) {
      expect(parsePluginError(each, "x")).not.toBeInstanceOf(NotRunError);
      expect(failure(each).details).toBe(
        'its program is "/opt/cni/bin/x", used instead of the built-in plugin',
      );
    }
  });
});

describe("parsePluginError() explains what is no error object", () => {
  test("nothing at all", () => {
    expect(failure({ exitCode: 3 })).toEqual({
      code: 999,
      message: 'Plugin "x" failed without an error object: it ended with status 3',
      details: "it printed nothing, neither a result nor an error",
    });
  });

  test("killed", () => {
    expect(failure({ exitCode: 137, signal: 9 }).message).toContain("signal 9 ended it");
  });

  test("words on standard error only", () => {
    expect(failure({ exitCode: 2, stdout: "\n", stderr: "panic: oh" })).toMatchObject({
      message: 'Plugin "x" failed without an error object: it ended with status 2',
      details: 'it said "panic: oh"',
    });
  });

  test.each(["{}", "null"])("no message: %s", (stdout) => {
    const { code, message, details } = failure({ stdout, stderr: "log" });
    expect(code).toBe(999);
    expect(message).toContain("has no message: it ended with status 1");
    expect(details).toBe('it said "log"');
  });

  test.each([
    ['{"code":"7","msg":"no"}'],
    ['{"code":-1,"msg":"no"}'],
    ['{"code":1.5,"msg":"no"}'],
    ['{"code":7,"msg":["no"]}'],
    ['{"code":7,"msg":"no","details":{}}'],
    ['[{"code":7}]'],
    ["7"],
    ["Segmentation fault"],
    ['{"ips":[]}{"code":8,"msg":"two documents"}'],
  ])("%s", (stdout) => {
    const { code, message, details } = failure({ stdout, stderr: "log" });
    expect(code).toBe(999);
    expect(message).toBe('Plugin "x" failed without an error object: it ended with status 1');
    expect(details).toBe(`it printed ${JSON.stringify(stdout)}; it said "log"`);
  });

  test("much of it is cut", () => {
    expect(failure({ stdout: "y".repeat(10_000) }).details!.length).toBeLessThan(300);
  });
});

describe("parsePluginResult()", () => {
  test.each(["", "\n", "words", "{}{}", '{"ips":'])("explains what is not one document: %j", (stdout) => {
    const call = () => parsePluginResult(stdout, "x", "1.1.0");
    expect(call).toThrow(CniError);
    expect(call).toThrow('Cannot read the result of plugin "x": expected one JSON document');
  });

  test.each([
    ["null", "null"],
    ["no version", '{"ips":[]}'],
    ["an error object, as the status was 0", '{"code":7,"msg":"no"}'],
  ])("takes %s for an empty result", (_, stdout) => {
    expect(JSON.parse(stringifyResult(parsePluginResult(stdout, "x", "1.0.0"), "1.0.0"))).toEqual({
      cniVersion: "1.0.0",
    });
  });

  test("converts an answer in another version", () => {
    const older = '{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.2/16","gateway":"10.1.0.1"}}';
    expect(JSON.parse(stringifyResult(parsePluginResult(older, "x", "1.1.0"), "1.1.0"))).toEqual({
      cniVersion: "1.1.0",
      ips: [{ address: "10.1.0.2/16", gateway: "10.1.0.1" }],
    });
  });
});
