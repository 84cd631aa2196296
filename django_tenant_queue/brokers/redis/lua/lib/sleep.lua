-- The end of a claim: who found less than asked sleeps where it could take more, and lanes that are left wake another sleeper (the baton).
local function sleep_or_pass_on(shares, more)
  for _, share in ipairs(shares) do
    if sleeper ~= '' then
      if share.left > 0 and taken < limit and not more then
        call('ZADD', root .. 'sleepers:' .. share.queue.name, now, sleeper)
      else
        call('ZREM', root .. 'sleepers:' .. share.queue.name, sleeper)
      end
    end
    if share.slots > 0 and not more then stirred[share.queue.name] = true end
  end
  for name in pairs(stirred) do
    if call('EXISTS', open_queue(name).ring) == 1 then stir(name) end
  end
end
