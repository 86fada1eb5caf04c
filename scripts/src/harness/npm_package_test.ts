import { expect, test } from "bun:test";
import { requireIntegrity } from "./npm_package.ts";

test("requireIntegrity() takes the bytes that are pinned, and no others", () => {
  // printf abc | openssl dgst -sha512 -binary | base64 -w0
  const integrity = "sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==";
  requireIntegrity("@oven/bun", Buffer.from("abc"), integrity);
  expect(() => requireIntegrity("@oven/bun", Buffer.from("abd"), integrity)).toThrow(
    "Cannot take @oven/bun from npm: it is sha512-",
  );
});
