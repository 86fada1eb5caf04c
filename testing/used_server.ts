/**
 * A server for all tests of a file.
 *
 * @module
 */
import { afterAll } from "bun:test";
import { type CniServer, startServer } from "./server.ts";

/** Starts a server, which ends after the last test of the file. */
export async function useServer(): Promise<CniServer> {
  const server = await startServer();
  afterAll(() => server[Symbol.dispose]());
  return server;
}
