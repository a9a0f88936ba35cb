// The tools of the example, and the schema of its configuration.
import { setTimeout as sleep } from 'node:timers/promises'

export const configSchema = {
  type: 'object',
  properties: {
    language: { type: 'string', description: 'The language of texts and times, as a BCP 47 tag.', default: 'en' },
  },
  additionalProperties: false,
}

// makeTools returns the tools for a configuration. It throws when the language is none.
export function makeTools({ language }, instance) {
  const words = new Intl.Segmenter(language, { granularity: 'word' })
  return [
    {
      name: 'word_count',
      description: 'Counts the words of a text.',
      title: 'Count words',
      input: {
        type: 'object',
        properties: { text: { type: 'string', description: 'The text.' } },
        required: ['text'],
      },
      async run({ text }) {
        let n = 0
        for (const { isWordLike } of words.segment(text)) n += isWordLike ? 1 : 0
        const total = instance.state.words += n
        await instance.keep()
        return `${n} words, ${total} so far`
      },
    },
    {
      name: 'clock',
      description: 'Says what time it is, once a second.',
      title: 'Clock',
      terminal: true, // what it says while it runs is shown as it comes
      input: {
        type: 'object',
        properties: { times: { type: 'integer', description: 'How often; once by default.', minimum: 1, maximum: 3600 } },
      },
      async run({ times = 1 }, output, signal) {
        let said = ''
        for (let i = 0; i < times; i++) {
          if (i > 0) await sleep(1000, undefined, { signal }) // throws when the call is cancelled
          const line = new Date().toLocaleTimeString(language) + '\n'
          output(line)
          said += line
        }
        return said
      },
    },
  ]
}
