import { expect, test } from "bun:test";
import { keyPaths } from "./key_paths.ts";

const paths = (text: string) => [...keyPaths(text)].map((path) => path.join("/"));

test("keyPaths() gives every key, also one that is there again, in the order of the text", () => {
  expect(paths('{"a":1,"b":{"c":"x","c":[{"d":{}},"e",{"f":null}],"a":{}},"a":"g"}')).toEqual([
    "a",
    "b",
    "b/c",
    "b/c",
    "b/c/[0]/d",
    "b/c/[2]/f",
    "b/a",
    "a",
  ]);
  for (const text of ["{}", "[]", '["a"]', '"a"', "1", ""]) expect(paths(text)).toEqual([]);
});

test("keyPaths() reads texts and comments as such", () => {
  expect(paths(String.raw`{"a\"{":"b\\","\u0063":"{\"x\":1}", /* "d": { */ "e": [ // "f":
    ], "g":{},}`)).toEqual(['a"{', "c", "e", "g"]);
});
