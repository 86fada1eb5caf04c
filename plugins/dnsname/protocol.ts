/** Messages between the plugin and the server, as JSON in packets of a Unix socket. */
import {
  array,
  type Infer,
  int,
  ipAddress,
  knownKeys,
  lazy,
  nonEmptyString,
  oneOf,
  optional,
} from "../../spec/schema.ts";

export const DNS_PORT = 53;
export const PROTOCOL_VERSION = 1;
export const MAX_MESSAGE_BYTES = 64 * 1024;

/**
 * `changed`: the file was written or removed. `look`: it was not; is it served, on the links that there are now? Without
 * a file: is the server there?
 */
export const requestSchema = lazy(() =>
  knownKeys({
    version: int({ min: PROTOCOL_VERSION, max: PROTOCOL_VERSION }),
    command: oneOf("changed", "look"),
    file: optional(nonEmptyString),
  })
);
export type ServerRequest = Infer<typeof requestSchema>;

const problemSchema = lazy(() =>
  knownKeys({
    address: ipAddress,
    device: nonEmptyString,
    protocol: oneOf("udp", "tcp"),
    /** `EADDRINUSE` */
    code: nonEmptyString,
    message: nonEmptyString,
  })
);
export type ListenProblem = Infer<typeof problemSchema>;

export const replySchema = lazy(() =>
  knownKeys({
    version: int({ min: 1 }),
    problems: array(problemSchema),
    /** Why it serves nothing of the file. */
    refused: optional(nonEmptyString),
  })
);
export type ServerReply = Infer<typeof replySchema>;
