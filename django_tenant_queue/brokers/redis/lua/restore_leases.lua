-- restore_leases: put back the leases of running rows. A job that waits, or is leased under another token, keeps what it has.
-- KEYS[1] meta; ARGV[1..7] see lib/context
-- ARGV[8..] token, queue, lane, expires in us, body, ... : body = 16 bytes id, task number, cost (4 bytes each)
-- Returns 'lost' | 'moved' | 'ok'
-- Keeps: one lease for a job. The id comes last, so a repeat finishes what a script that died began.
--- include context
--- include queue
--- include lease
for i = 8, #ARGV, 5 do
  local token, name, lane, body = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 4]
  local id, task, cost = struct.unpack('>c16I4I4', body)
  if call('HEXISTS', root .. 'jobs', id) == 0 then
    local queue = open_queue(name)
    call('SADD', root .. 'queues', name)
    call('ZADD', root .. 'expiry', now + tonumber(ARGV[i + 3]), token)
    call('HSET', root .. 'lease', token,
      pack_lease({ id = id, task = task, cost = cost, claimed = now, charged = 0, queue = name, lane = lane }))
    call('ZADD', queue.leases .. lane, now, token)
    call('HSET', root .. 'jobs', id, token)
    queue.running, queue.changed = queue.running + 1, true
  end
end
close_queues()
return 'ok'
