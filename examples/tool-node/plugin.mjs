#!/usr/bin/env node
// A plugin of dsh without its SDK: the handshake, the life of an instance, and a tool provider. What the tools do is in tools.mjs.
// Everything here follows docs/plugins-in-other-languages.md.
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import grpc from '@grpc/grpc-js'
import protoLoader from '@grpc/proto-loader'
import { configSchema, makeTools } from './tools.mjs'

if (process.env.DSH_PLUGIN !== 'd57e1f04-0a5c-4f0e-9a0d-6d5f5c8a7f21') {
  console.error('tool-node is a plugin of dsh and runs only below it; name it in a configuration, see dsh.yaml')
  process.exit(2)
}

// The host reads a log entry from each line of stderr. Before the handshake nothing else may come to stdout.
globalThis.console = new console.Console(process.stderr)
const log = (level, message, more = {}) => console.error(JSON.stringify({ '@level': level, '@message': message, ...more }))

// The host never writes to this pipe; its end is the host's. On Linux the kernel kills this process even sooner, but elsewhere there is
// only the pipe. There is nothing to undo: the next host removes the sockets.
new net.Socket({ fd: Number(process.env.DSH_LIVENESS_FD) })
  .on('error', () => process.exit(1))
  .on('close', () => process.exit(1))
  .resume()

// Sockets are made with the mode that this leaves: for this user alone.
process.umask(0o077)

const protos = fileURLToPath(new URL('../../sdk/api/proto', import.meta.url))
const { dsh } = grpc.loadPackageDefinition(
  protoLoader.loadSync(['dsh/plugin/v1/plugin.proto', 'dsh/tools/v1/tools.proto'],
    { includeDirs: [protos], enums: String, longs: Number, defaults: true, oneofs: true }))

// Messages may be as large as dsh lets them be; gRPC's own limit is 4 MiB.
const limits = { 'grpc.max_receive_message_length': 65 << 20, 'grpc.max_send_message_length': 65 << 20 }
const plain = grpc.credentials.createInsecure()

const manifest = {
  name: 'tool-node',
  version: '0.1.0',
  provides: [{ seam: 'tool-provider', service: 'dsh.tools.v1.ToolProvider', contribution: true }],
  configSchema: JSON.stringify(configSchema),
}

// An Instance is what Activate makes and Deactivate ends.
class Instance {
  running = new Set() // an AbortController for each call in flight

  async start({ config, checkpoint, hostSocket, seamSocket, crash }) {
    if (crash) log('warn', 'the last instance crashed', { how: crash })
    this.state = restored(checkpoint) ?? { words: 0 }
    this.host = new dsh.plugin.v1.Host('unix:' + hostSocket, plain, limits)
    // The schema has been checked by the host; what it cannot say, makeTools finds.
    this.tools = new Map(makeTools({ language: 'en', ...JSON.parse(config || '{}') }, this).map((t) => [t.name, t]))
    this.server = new grpc.Server(limits)
    this.server.addService(dsh.tools.v1.ToolProvider.service, {
      list: unary(() => ({ tools: [...this.tools.values()].map(listed) })),
      present: unary(({ call }) => ({ presentation: this.presentation(call) })),
      execute: (stream) => this.execute(stream),
    })
    await listen(this.server, seamSocket)
  }

  // keep leaves the state with the host, so that it survives a crash as well as a reload. One after the other: calls are not ordered.
  keep() {
    this.kept = (this.kept ?? Promise.resolve()).then(() => new Promise((resolve) => {
      this.host.checkpoint({ state: this.checkpoint() }, (err) => {
        if (err) log('warn', 'no checkpoint', { error: err.details })
        resolve()
      })
    }))
    return this.kept
  }

  checkpoint() { return Buffer.from(JSON.stringify(this.state)) }

  // stop ends the calls in flight and waits for their results, but not beyond the host's deadline.
  async stop(deadline) {
    for (const call of this.running) call.abort()
    const errors = []
    await new Promise((resolve) => {
      const timer = setTimeout(() => {
        errors.push('calls in flight did not return in time')
        this.server.forceShutdown()
      }, Math.max(0, deadline - Date.now() - 100))
      this.server.tryShutdown(() => {
        clearTimeout(timer)
        resolve()
      })
    })
    this.host.close()
    return errors
  }

  presentation(call) {
    const tool = this.tools.get(call.name)
    return {
      title: tool?.title ?? call.name,
      kind: 'KIND_OTHER',
      rawInput: parsed(call.arguments) === undefined ? JSON.stringify(call.arguments) : call.arguments || '{}',
      terminal: tool?.terminal ? { cwd: call.sessionCwd || process.cwd() } : null,
    }
  }

  // execute sends a presentation, output, and one result. The end of the requests means nothing: the host may have no more to say.
  execute(stream) {
    let running
    stream.on('data', async (request) => {
      if (request.cancel) return running?.abort()
      if (running) return // an answer to a question that a provider never asks
      running = new AbortController()
      if (!request.call) {
        return stream.emit('error', { code: grpc.status.INVALID_ARGUMENT, details: 'the first request must be the call' })
      }
      this.running.add(running)
      try {
        stream.write({ presentation: this.presentation(request.call) })
        const output = (data) => running.signal.aborted || stream.write({ output: { data } })
        stream.write({ result: await this.run(request.call, output, running.signal) })
      } finally {
        this.running.delete(running)
        stream.end()
      }
    })
    stream.on('cancelled', () => running?.abort()) // the call itself was ended
    stream.on('error', (err) => log('debug', 'a call broke off', { error: String(err) }))
  }

  // run gives a result whatever happens: an error of the stream would say that the plugin is broken, not the call.
  async run(call, output, signal) {
    const tool = this.tools.get(call.name)
    if (!tool) return failure('ToolNotFoundError', 'UNKNOWN_TOOL', `unknown tool "${call.name}"`)
    const args = parsed(call.arguments)
    const faults = check(tool.input, args)
    if (faults.length > 0) return failure('ToolArgsError', 'INVALID_ARGS', 'invalid arguments: ' + faults.join('; '))
    try {
      const text = await tool.run(args, output, signal)
      return { content: [{ text }], exit: tool.terminal ? { code: 0 } : null }
    } catch (err) {
      if (signal.aborted) return failure('ToolCancelledError', 'CANCELLED', 'the call was cancelled')
      return failure('ToolError', 'TOOL_FAILED', err.message)
    }
  }
}

function listed({ name, description, input }) {
  return { name, description, inputSchema: JSON.stringify(input) }
}

// failure is the result of a call that failed. A string of JavaScript may hold half a character, and gRPC refuses what is not UTF-8.
function failure(name, code, message) {
  return { isError: true, error: { name, code }, content: [{ text: ('Error: ' + message).toWellFormed() }] }
}

// parsed is the value of arguments, undefined if they are no JSON.
function parsed(text) {
  try {
    return JSON.parse(text.trim() || '{}')
  } catch {
    return undefined
  }
}

// check lists everything that is wrong with arguments, for as much of JSON schema as the tools here use.
function check({ properties, required }, args) {
  if (args === null || typeof args !== 'object' || Array.isArray(args)) return ['"arguments" must be an object']
  return Object.entries(properties).flatMap(([name, { type, minimum, maximum }]) => {
    if (!Object.hasOwn(args, name)) return required?.includes(name) ? [`missing required property "${name}"`] : []
    const value = args[name]
    if (type === 'string' && typeof value !== 'string') return [`"${name}" must be a string`]
    if (type === 'integer' && !Number.isInteger(value)) return [`"${name}" must be an integer`]
    if (value < minimum) return [`"${name}" must be at least ${minimum}`]
    if (value > maximum) return [`"${name}" must be at most ${maximum}`]
    return []
  })
}

function restored(checkpoint) {
  return checkpoint.length > 0 ? JSON.parse(checkpoint) : undefined
}

function listen(server, socket) {
  return new Promise((resolve, reject) => {
    server.bindAsync('unix:' + socket, grpc.ServerCredentials.createInsecure(), (err) => (err ? reject(err) : resolve()))
  })
}

// unary makes a handler of a function from the request (and the call) to the answer.
function unary(answer) {
  return async (call, done) => {
    try {
      done(null, await answer(call.request, call))
    } catch (err) {
      done({ code: grpc.status.FAILED_PRECONDITION, details: err.message })
    }
  }
}

let instance // undefined: not active

const lifeCycle = {
  describe: unary(() => ({ manifest })),
  activate: unary(async (request) => {
    if (instance) throw new Error('the instance is active already')
    const fresh = new Instance()
    try {
      await fresh.start(request)
    } catch (err) {
      fresh.server?.forceShutdown()
      fresh.host?.close()
      throw err
    }
    instance = fresh
    log('info', 'ready', { row: request.row, generation: request.generation })
    return {}
  }),
  // There is nothing that a successor must have first. Calls in flight go on; the host sends no new ones.
  retire: unary(() => ({ checkpoint: instance?.checkpoint() })),
  resume: unary(({ checkpoint }) => {
    if (!instance) throw new Error('the instance is not active')
    instance.state = restored(checkpoint) ?? instance.state
    return {}
  }),
  deactivate: unary(async (_, call) => {
    const ending = instance
    instance = undefined
    return { errors: ending ? await ending.stop(call.getDeadline()) : [] }
  }),
}

// go-plugin's own way to end a plugin: a service without fields, so that its messages are empty.
const controller = {
  Shutdown: {
    path: '/plugin.GRPCController/Shutdown',
    requestStream: false,
    responseStream: false,
    requestSerialize: () => Buffer.alloc(0),
    requestDeserialize: () => ({}),
    responseSerialize: () => Buffer.alloc(0),
    responseDeserialize: () => ({}),
  },
}

const server = new grpc.Server(limits)
server.addService(dsh.plugin.v1.Plugin.service, lifeCycle)
server.addService(controller, {
  Shutdown: (_, done) => {
    done(null, {})
    server.tryShutdown(() => process.exit(0))
  },
})
const socket = path.join(process.env.PLUGIN_UNIX_SOCKET_DIR, 'life')
await listen(server, socket)
fs.writeSync(1, `1|1|unix|${socket}|grpc\n`)
